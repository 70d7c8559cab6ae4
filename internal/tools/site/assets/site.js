"use strict";

// On wide screens, the menu is open.
const menu = document.getElementById("menu");
const wide = matchMedia("(min-width: 800px)");
const adapt = () => { menu.open = wide.matches; };
wide.addEventListener("change", adapt);
adapt();

const root = document.body.dataset.root + "/";
const query = document.getElementById("query");
const results = document.getElementById("results");
const count = document.getElementById("count");

const index = new MiniSearch({
  fields: ["heading", "page", "text"],
  storeFields: ["heading", "page", "url", "text"],
  // The search finds names such as x-death and failed.queue by the whole name and by parts.
  tokenize: text => text.split(/[\s,;:()[\]{}"'`|<>=]+/).flatMap(word => {
    const parts = word.split(/[.\-_/]+/);
    return parts.length > 1 ? [word, ...parts] : parts;
  }).filter(word => word !== ""),
  searchOptions: { prefix: true, fuzzy: word => word.length > 4 ? 0.2 : false, combineWith: "AND", boost: { page: 4, heading: 3 } },
});
index.addAll(entries);

// excerpt returns the text around the first match.
function excerpt(hit) {
  const lower = hit.text.toLowerCase();
  const at = Math.min(...hit.terms.map(term => lower.indexOf(term)).filter(i => i >= 0), lower.length);
  const begin = at < lower.length ? Math.max(0, at - 60) : 0;
  return (begin > 0 ? "…" : "") + hit.text.slice(begin, begin + 140) + (hit.text.length > begin + 140 ? "…" : "");
}

function show() {
  const words = query.value.trim();
  const hits = words === "" ? [] : index.search(words).slice(0, 12);
  results.replaceChildren(...hits.map(hit => {
    const link = document.createElement("a");
    link.href = root + hit.url;
    const title = document.createElement("strong");
    title.textContent = hit.heading === "" ? hit.page : `${hit.page}: ${hit.heading}`;
    const text = document.createElement("span");
    text.textContent = excerpt(hit);
    link.append(title, text);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  if (words !== "" && hits.length === 0) {
    const item = document.createElement("li");
    item.textContent = "No results";
    results.append(item);
  }
  results.hidden = words === "";
  count.textContent = words === "" ? "" : hits.length === 1 ? "1 result" : `${hits.length} results`;
}

query.addEventListener("input", show);
query.addEventListener("focus", show);
document.getElementById("search").addEventListener("submit", event => {
  event.preventDefault();
  results.querySelector("a")?.click();
});
document.addEventListener("keydown", event => {
  const typing = event.target.closest("input, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    query.focus();
  } else if (event.key === "Escape") {
    results.hidden = true;
  }
});
document.addEventListener("click", event => {
  if (!event.target.closest("#search")) results.hidden = true;
});
