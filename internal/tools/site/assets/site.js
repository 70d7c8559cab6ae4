"use strict";

// On wide screens, the menu and the outline are open.
for (const [id, width] of [["menu", 800], ["outline", 1150]]) {
  const details = document.getElementById(id);
  const wide = matchMedia(`(min-width: ${width}px)`);
  const adapt = () => { if (details) details.open = wide.matches; };
  wide.addEventListener("change", adapt);
  adapt();
}

// The menu scrolls to the current page.
const nav = document.querySelector("nav");
const current = nav.querySelector("[aria-current]");
nav.scrollTop = current.offsetTop - nav.clientHeight / 2;

// Each code block has a button that copies the block.
for (const pre of navigator.clipboard ? document.querySelectorAll("main pre") : []) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const commands = pre.innerText.match(/^\$ .*/gm); // a session also has output
    await navigator.clipboard.writeText(commands ? commands.map(c => c.slice(2)).join("\n") + "\n" : pre.innerText);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  const box = document.createElement("div");
  box.className = "code";
  pre.replaceWith(box);
  box.append(pre, button);
}

const root = document.body.dataset.root + "/";
const query = document.getElementById("query");
const results = document.getElementById("results");
const count = document.getElementById("count");

const stopWords = new Set("a an and are as at by can do does for from how i in is it my of on or the this to what when with".split(" "));

// stem returns the common beginning of the forms of a word: trac for trace, traces and tracing, or null for a word without meaning.
function stem(word) {
  word = word.toLowerCase();
  return stopWords.has(word) ? null : word.replace(/^(...*[^s])s$/, "$1").replace(/^(....+?)(?:ing?|ion?|ed|e)$/, "$1")
    .replace(/^(..+)([bdglmnprt])\2$/, "$1$2").replace(/^(...+)[iy]$/, "$1");
}

const index = new MiniSearch({
  fields: ["heading", "page", "keywords", "text"],
  storeFields: ["heading", "page", "url", "text", "boost"],
  processTerm: stem,
  // The search finds names such as x-death and failed.queue by the whole name and by parts.
  tokenize: text => text.split(/[\s,;:()[\]{}"'`|<>=]+|[.!?…]+(?:\s|$)/).flatMap(word => {
    const parts = word.split(/[.\-_/]+/);
    return parts.length > 1 ? [word, ...parts] : parts;
  }).filter(word => word !== ""),
  searchOptions: { prefix: (word, i, words) => i === words.length - 1, fuzzy: word => word.length > 4 ? 0.2 : false, combineWith: "AND",
    boost: { page: 4, heading: 3, keywords: 4 }, boostDocument: (id, term, { boost }) => boost ?? 1 },
});
index.addAll(entries);

// excerpt returns the text around the first match.
function excerpt(hit) {
  const lower = hit.text.toLowerCase();
  const at = Math.min(...hit.terms.map(term => lower.indexOf(term)).filter(i => i >= 0), lower.length);
  const begin = at < lower.length ? Math.max(0, at - 60) : 0;
  return (begin > 0 ? "…" : "") + hit.text.slice(begin, begin + 140) + (hit.text.length > begin + 140 ? "…" : "");
}

// search returns the sections with all words or, if there are none, the sections with some of them.
function search(words) {
  const hits = index.search(words);
  return (hits.length > 0 ? hits : index.search(words, { combineWith: "OR" })).slice(0, 12);
}

function show() {
  const words = query.value.trim();
  const hits = words === "" ? [] : search(words);
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
