// This script selects messages in lists and shows the number of new rows. It adds, removes and moves rows
// only if the user requests it, so that the row under the pointer does not change. Cells with the
// attribute data-now are updated in place.
"use strict";

(() => {
  const $all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Selection. The checkbox in the head of a list selects all rows.
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
  const updateCounts = () => {
    for (const head of $all("[data-pick-head]")) head.hidden = false;
    for (const form of $all("form[data-picks]")) count(form);
  };
  document.addEventListener("htmx:afterSwap", updateCounts);
  updateCounts();

  // New rows.
  const news = document.querySelector(".news");
  if (!news || new URLSearchParams(location.search).has("after")) return;
  const button = news.querySelector("button"), status = news.querySelector("[role=status]");
  // Minimum time in ms between two reloads, and between two announcements of a screen reader.
  const reloadPause = 2000, announcePause = 30000;
  const list = () => document.getElementById("list");
  const rows = (root) => $all("#rows > tr[id]", root);
  let page, newRows = [], announcedAt = 0; // the reloaded page, and its rows that the displayed page does not have

  // Missing rows after the last displayed row are not new, because they belong to the next page.
  const findNewRows = () => {
    const here = new Set(rows(list()).map((row) => row.id)), all = rows(page);
    const last = all.findLastIndex((row) => here.has(row.id)), isWhole = !$all(".more", list()).length;
    return all.slice(0, isWhole || last < 0 ? all.length : last).filter((row) => !here.has(row.id));
  };
  const replaceContent = (old, now) => {
    if (!old || !now || old.innerHTML === now.innerHTML) return;
    old.className = now.className;
    old.replaceChildren(...now.cloneNode(true).childNodes);
  };
  const announce = () => {
    const n = newRows.length, isMore = n === rows(page).length && $all("#list .more", page).length > 0;
    const text = (isMore ? "more than " : "") + n + " " + (n === 1 ? news.dataset.word : news.dataset.words);
    button.hidden = n === 0;
    button.textContent = "Show " + text;
    if (n > 0 && Date.now() - announcedAt < announcePause) return;
    status.textContent = n > 0 ? text : "";
    announcedAt = n > 0 ? Date.now() : 0;
  };
  const reload = async () => {
    const answer = await fetch(location.href);
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || !page.getElementById("list")) return; // keep the displayed list
    const selection = getSelection();
    if (selection.isCollapsed || !list().contains(selection.anchorNode))
      for (const row of rows(page)) {
        const here = document.getElementById(row.id), cells = here ? $all("[data-now]", here) : [];
        $all("[data-now]", row).forEach((cell, i) => replaceContent(cells[i], cell));
      }
    for (const id of ["waiting", "running"]) replaceContent(document.getElementById(id), page.getElementById(id));
    newRows = findNewRows();
    announce();
    document.dispatchEvent(new Event("rows"));
  };
  let busy = false, pending = false;
  const reloadSoon = async () => {
    pending = busy;
    if (busy) return;
    busy = true;
    await reload().catch(() => {}); // the next event reloads again
    setTimeout(() => { busy = false; if (pending) reloadSoon(); }, reloadPause);
  };
  document.body.addEventListener("archive", reloadSoon);

  // Insert each new row before its successor. If all rows of the page are new, replace the whole list.
  button.addEventListener("click", () => {
    const first = newRows[0].id, isAll = newRows.length === rows(page).length;
    if (isAll) {
      list().replaceWith(page.getElementById("list"));
      htmx.process(list());
    } else {
      let next = document.querySelector("#rows > tr:not([id])");
      for (const row of rows(page).reverse()) {
        const here = document.getElementById(row.id);
        if (!here && !newRows.includes(row)) continue;
        if (!here) next ? next.before(row) : document.getElementById("rows").append(row);
        next = here || row;
      }
      for (const row of newRows) htmx.process(row);
    }
    for (const row of newRows) document.getElementById(row.id).classList.add("fresh");
    replaceContent(document.getElementById("total"), page.getElementById("total"));
    newRows = [];
    announce();
    updateCounts();
    document.querySelector(`#${first} a.row`).focus();
    document.dispatchEvent(new Event("rows"));
  });
})();
