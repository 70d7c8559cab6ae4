// Lists: messages are picked from them, and they show how many new rows there are. No row
// is added, removed or moved until the reader asks for it: what is read or picked is still
// in its place a second later. What rows show of the moment (data-now) is renewed in place.
"use strict";

(() => {
  const $all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Picking. A box above a list picks all of it.
  const count = (form) => {
    const boxes = $all("input[name=id]", form);
    const picked = boxes.filter((box) => box.checked).length;
    for (const bar of $all("[data-picked]", form)) bar.hidden = picked === 0;
    for (const text of $all("[data-picked-count]", form)) text.textContent = picked;
    for (const all of $all("[data-pick-all]", form)) {
      all.checked = picked > 0 && picked === boxes.length;
      all.indeterminate = picked > 0 && picked < boxes.length;
    }
  };
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (!form) return;
    if (event.target.matches("[data-pick-all]"))
      for (const box of $all("input[name=id]", form)) box.checked = event.target.checked;
    if (event.target.matches("[data-pick-all], input[name=id]")) count(form);
  });
  const begin = () => {
    for (const head of $all("[data-pick-head]")) head.hidden = false;
    for (const form of $all("form[data-picks]")) count(form);
  };
  document.addEventListener("htmx:afterSwap", begin);
  begin();

  // News.
  const news = document.querySelector(".news");
  if (!news || new URLSearchParams(location.search).has("after")) return;
  const button = news.querySelector("button"), status = news.querySelector("[role=status]");
  const pause = 2000, quiet = 30000; // between two looks, and between two words to who cannot see
  const list = () => document.getElementById("list");
  const rows = (root) => $all("#rows > tr[id]", root);
  let page, found = [], said = 0; // the page as it is now, and its rows that are not here

  // A row at the end that is not here is none of the news, but of the page after this.
  const missing = () => {
    const here = new Set(rows(list()).map((row) => row.id)), all = rows(page);
    const last = all.findLastIndex((row) => here.has(row.id)), isWhole = !$all(".more", list()).length;
    return all.slice(0, isWhole || last < 0 ? all.length : last).filter((row) => !here.has(row.id));
  };
  const renew = (old, now) => {
    if (!old || !now || old.innerHTML === now.innerHTML) return;
    old.className = now.className;
    old.replaceChildren(...now.cloneNode(true).childNodes);
  };
  const say = () => {
    const n = found.length, isMore = n === rows(page).length && $all("#list .more", page).length > 0;
    const text = (isMore ? "more than " : "") + n + " " + (n === 1 ? news.dataset.word : news.dataset.words);
    button.hidden = n === 0;
    button.textContent = "Show " + text;
    if (n > 0 && Date.now() - said < quiet) return;
    status.textContent = n > 0 ? text : "";
    said = n > 0 ? Date.now() : 0;
  };
  const look = async () => {
    const answer = await fetch(location.href);
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || !page.getElementById("list")) return; // it says so where it is of use
    const marked = getSelection();
    if (marked.isCollapsed || !list().contains(marked.anchorNode))
      for (const row of rows(page)) {
        const here = document.getElementById(row.id), cells = here ? $all("[data-now]", here) : [];
        $all("[data-now]", row).forEach((cell, i) => renew(cells[i], cell));
      }
    for (const id of ["waiting", "running"]) renew(document.getElementById(id), page.getElementById(id));
    found = missing();
    say();
    document.dispatchEvent(new Event("rows"));
  };
  let busy = false, again = false;
  const hear = async () => {
    again = busy;
    if (busy) return;
    busy = true;
    await look().catch(() => {}); // the next change asks again
    setTimeout(() => { busy = false; if (again) hear(); }, pause);
  };
  document.body.addEventListener("archive", hear);

  // Each row goes before the one that follows it; with more news than a page, all of the
  // page is new.
  button.addEventListener("click", () => {
    const first = found[0].id, isAll = found.length === rows(page).length;
    if (isAll) {
      list().replaceWith(page.getElementById("list"));
      htmx.process(list());
    } else {
      let next = document.querySelector("#rows > tr:not([id])");
      for (const row of rows(page).reverse()) {
        const here = document.getElementById(row.id);
        if (!here && !found.includes(row)) continue;
        if (!here) next ? next.before(row) : document.getElementById("rows").append(row);
        next = here || row;
      }
      for (const row of found) htmx.process(row);
    }
    for (const row of found) document.getElementById(row.id).classList.add("fresh");
    renew(document.getElementById("total"), page.getElementById("total"));
    found = [];
    say();
    begin();
    document.querySelector(`#${first} a.row`).focus();
    document.dispatchEvent(new Event("rows"));
  });
})();
