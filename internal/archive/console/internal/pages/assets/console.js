// The console works without scripts. This script updates pages live and keeps relative times current.
// lists.js updates the lists of messages.
"use strict";

(() => {
  const $all = (selector, root = document) => root.querySelectorAll(selector);

  // Server-sent events report changes. Elements with hx-trigger="changed from:body" then reload their
  // content. They also reload when the page connects, to show changes since it was rendered. Hidden pages
  // do not connect.
  const state = document.getElementById("live");
  let source;
  const show = (on) => {
    if (!state) return;
    state.hidden = false;
    state.classList.toggle("on", on);
    state.textContent = on ? "Live" : "Not live";
  };
  const notify = (what) => htmx.trigger(document.body, what);
  const connect = () => {
    if (source || document.hidden || !state) return;
    source = new EventSource(document.documentElement.dataset.prefix + "/live");
    source.addEventListener("open", () => { show(true); notify("changed"); notify("archive"); });
    source.addEventListener("error", () => show(false));
    source.addEventListener("changed", () => notify("changed"));
    source.addEventListener("archive", () => notify("archive"));
  };
  const disconnect = () => {
    if (source) source.close();
    source = undefined;
    show(false);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else connect();
  });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", connect);

  // This function must return the same strings as Ago and Due in internal/archive/console/internal/show/format.go.
  const units = [["s", 1, 60], ["min", 60, 3600], ["h", 3600, 2 * 86400], ["d", 86400, 1000 * 86400]];
  const ago = (then, due) => {
    const seconds = Math.round((Date.now() - then) / 1000);
    const size = Math.abs(seconds);
    if (size < 5) return due && seconds < 0 ? "in less than 5 s" : "just now";
    const [unit, length] = units.find(([, length, limit]) => Math.round(size / length) * length < limit) ?? ["y", 365 * 86400];
    const text = Math.round(size / length) + " " + unit;
    return seconds < 0 ? "in " + text : text + " ago";
  };
  const tick = () => {
    for (const t of $all("time[data-ago]")) {
      const text = ago(Date.parse(t.dateTime), t.dataset.ago === "due");
      if (t.textContent !== text) t.textContent = text;
    }
  };
  setInterval(tick, 5000);

  // A form is submitted only once: a second click has no effect until the response arrives.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of $all("form[data-sent]")) delete form.dataset.sent;
  });

  // The browser warns a user who leaves the editor with unsaved changes. A form that the server returned
  // with an error is unsaved from the start.
  const editor = document.getElementById("edit");
  if (editor) {
    const fields = () => new URLSearchParams(new FormData(editor)).toString();
    const saved = "unsaved" in editor.dataset ? undefined : fields();
    window.addEventListener("beforeunload", (event) => {
      if (!editor.dataset.sent && fields() !== saved) event.preventDefault();
    });
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("input[type=search]");
    if (search) { event.preventDefault(); search.focus(); }
  });

  // Elements that reload must not disturb the user. They do not reload while the user presses a button or
  // selects text in them, and they keep the focus and the scroll position.
  let pressed = false, skipped = false;
  for (const name of ["pointerdown", "pointerup", "pointercancel"])
    document.addEventListener(name, () => {
      pressed = name === "pointerdown";
      if (!pressed && skipped) setTimeout(() => notify("changed")); // after the click
    }, true);
  const isLive = (element) => element.matches("[hx-trigger^=changed]");
  const interactive = "a, button, input, select, summary, [tabindex]";
  const isInUse = (part) => {
    const selection = getSelection();
    return pressed || (!selection.isCollapsed && part.contains(selection.anchorNode));
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isLive(event.detail.elt)) return;
    skipped = isInUse(event.detail.elt);
    if (skipped) event.preventDefault();
  });
  let snapshot, rowBefore;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    snapshot = undefined;
    rowBefore = part && part.matches("tr") ? part.previousElementSibling : undefined;
    if (!part || !part.id || !isLive(part)) return;
    skipped = isInUse(part);
    if (skipped) { event.detail.shouldSwap = false; return; }
    const all = [...$all(interactive, part)], focused = document.activeElement;
    snapshot = {
      id: part.id, at: all.indexOf(focused), href: focused && focused.getAttribute("href"),
      scrolls: all.map((e) => [e.scrollLeft, e.scrollTop]), open: all.map((e) => e.matches("details[open] > summary")),
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    const part = snapshot && document.getElementById(snapshot.id);
    if (part) {
      const all = [...$all(interactive, part)];
      all.forEach((e, i) => {
        [e.scrollLeft, e.scrollTop] = snapshot.scrolls[i] || [0, 0];
        if (snapshot.open[i] && e.matches("summary")) e.parentElement.open = true;
      });
      const focused = (snapshot.href && all.find((e) => e.getAttribute("href") === snapshot.href)) || all[snapshot.at];
      if (snapshot.at >= 0 && focused) focused.focus({ preventScroll: true });
      snapshot = undefined;
    }
    const next = rowBefore && rowBefore.nextElementSibling && rowBefore.nextElementSibling.querySelector("a.row");
    if (next) next.focus({ preventScroll: true }); // the row that replaced "Show more"
    rowBefore = undefined;
    tick();
  });
  document.addEventListener("rows", tick);
  const current = document.querySelector(".nav [aria-current]");
  if (current) current.scrollIntoView({ block: "nearest", inline: "center" });
  tick();
})();
