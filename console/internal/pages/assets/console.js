// The console works without scripts. With this one pages are live, and times count on;
// lists.js is for lists.
"use strict";

(() => {
  const $all = (selector, root = document) => root.querySelectorAll(selector);

  // What changed comes as server-sent events; parts of the page that say
  // hx-trigger="changed from:body" then fetch themselves anew. So they do when it
  // begins to listen, for what changed before. A page that nobody looks at does not.
  const state = document.getElementById("live");
  let source;
  const show = (on) => {
    if (!state) return;
    state.hidden = false;
    state.classList.toggle("on", on);
    state.textContent = on ? "Live" : "Not live";
  };
  const tell = (what) => htmx.trigger(document.body, what);
  const listen = () => {
    if (source || document.hidden || !state) return;
    source = new EventSource(document.documentElement.dataset.prefix + "/live");
    source.addEventListener("open", () => { show(true); tell("changed"); tell("archive"); });
    source.addEventListener("error", () => show(false));
    source.addEventListener("changed", () => tell("changed"));
    source.addEventListener("archive", () => tell("archive"));
  };
  const leave = () => {
    if (source) source.close();
    source = undefined;
    show(false);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) leave();
    else listen();
  });
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", listen);

  // The same words as the server's, by Ago in console/internal/show/format.go.
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const ago = (then) => {
    const seconds = Math.round((Date.now() - then) / 1000);
    const size = Math.abs(seconds);
    if (size < 5) return "just now";
    const [unit, length] = units.find(([, length]) => size >= length);
    const text = Math.floor(size / length) + " " + unit;
    return seconds < 0 ? "in " + text : text + " ago";
  };
  const tick = () => {
    for (const t of $all("time[data-ago]")) {
      const text = ago(Date.parse(t.dateTime));
      if (t.textContent !== text) t.textContent = text;
    }
  };
  setInterval(tick, 5000);

  // A form is sent once: a second click while the answer is on its way does nothing.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of $all("form[data-sent]")) delete form.dataset.sent;
  });

  // Whoever leaves the editor with unsaved changes is asked first. A form that was sent back with a
  // problem has unsaved changes from the start.
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

  // A part that fetches itself anew does so behind the back of whoever uses it: not while
  // they press a button or mark a text in it, and with the focus and the scrolling kept.
  let pressed = false, missed = false;
  for (const name of ["pointerdown", "pointerup", "pointercancel"])
    document.addEventListener(name, () => {
      pressed = name === "pointerdown";
      if (!pressed && missed) setTimeout(() => tell("changed")); // after the click
    }, true);
  const isLive = (element) => element.matches("[hx-trigger^=changed]");
  const inside = "a, button, input, select, summary, [tabindex]";
  const isUsed = (part) => {
    const marked = getSelection();
    return pressed || (!marked.isCollapsed && part.contains(marked.anchorNode));
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isLive(event.detail.elt)) return;
    missed = isUsed(event.detail.elt);
    if (missed) event.preventDefault();
  });
  let kept, above;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    kept = undefined;
    above = part && part.matches("tr") ? part.previousElementSibling : undefined;
    if (!part || !part.id || !isLive(part)) return;
    missed = isUsed(part);
    if (missed) { event.detail.shouldSwap = false; return; }
    const all = [...$all(inside, part)], focused = document.activeElement;
    kept = {
      id: part.id, at: all.indexOf(focused), href: focused && focused.getAttribute("href"),
      scrolls: all.map((e) => [e.scrollLeft, e.scrollTop]), open: all.map((e) => e.matches("details[open] > summary")),
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    const part = kept && document.getElementById(kept.id);
    if (part) {
      const all = [...$all(inside, part)];
      all.forEach((e, i) => {
        [e.scrollLeft, e.scrollTop] = kept.scrolls[i] || [0, 0];
        if (kept.open[i] && e.matches("summary")) e.parentElement.open = true;
      });
      const focused = (kept.href && all.find((e) => e.getAttribute("href") === kept.href)) || all[kept.at];
      if (kept.at >= 0 && focused) focused.focus({ preventScroll: true });
      kept = undefined;
    }
    const next = above && above.nextElementSibling && above.nextElementSibling.querySelector("a.row");
    if (next) next.focus({ preventScroll: true }); // where "Show more" was
    above = undefined;
    tick();
  });
  document.addEventListener("rows", tick);
  const here = document.querySelector(".nav [aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "center" });
  tick();
})();
