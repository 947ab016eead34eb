// Keeps a page as the server has it: takes in fragments by server-sent events and changes only what differs, so that
// focus, selection, scroll and what somebody has chosen or opened stay.
"use strict";
(() => {
  const main = document.querySelector("main[data-live]");

  const human = (s) => {
    const pair = (a, au, b, bu) => (b === 0 ? `${a}${au}` : `${a}${au}${b}${bu}`);
    const m = Math.floor(s / 60), h = Math.floor(s / 3600), d = Math.floor(s / 86400);
    if (s < 120) return `${s}s`;
    if (s < 600) return pair(m, "m", s % 60, "s");
    if (s < 10800) return `${m}m`;
    if (s < 28800) return pair(h, "h", m % 60, "m");
    if (s < 172800) return `${h}h`;
    if (s < 691200) return pair(d, "d", h % 24, "h");
    return `${d}d`;
  };
  const ages = () => {
    const now = Math.floor(Date.now() / 1000);
    for (const time of document.querySelectorAll("time[data-since]")) {
      const text = human(Math.max(0, now - Number(time.dataset.since)));
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(ages, 1000);

  // What the user does to an element is not the server's to take back.
  const OWN = new Set(["open", "value", "checked"]);
  const attributes = (old, fresh) => {
    for (const { name, value } of fresh.attributes) {
      if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!OWN.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  };
  const isSame = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const merge = (old, fresh) => {
    const named = new Map();
    for (const child of old.children) if (child.id) named.set(child.id, child);
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      let found = at;
      if (next.id && named.has(next.id)) {
        found = named.get(next.id);
      } else {
        while (found && !isSame(found, next) && found.id && !next.id) found = found.nextSibling;
      }
      if (found && isSame(found, next)) {
        if (found !== at) old.insertBefore(found, at); else at = at.nextSibling;
        if (found.nodeType === Node.ELEMENT_NODE) {
          if (!found.isEqualNode(next)) { attributes(found, next); merge(found, next); }
        } else if (found.nodeValue !== next.nodeValue) {
          found.nodeValue = next.nodeValue;
        }
      } else {
        old.insertBefore(document.adoptNode(next), at);
      }
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  };

  if (!main) return;
  const say = (text) => {
    let note = document.getElementById("connection");
    if (!text) { if (note) note.remove(); return; }
    if (!note) {
      note = document.createElement("p");
      note.id = "connection";
      note.className = "banner";
      note.setAttribute("role", "status");
      main.before(note);
    }
    note.textContent = text;
  };
  const page = location.pathname + location.search;
  let source;
  // What the server has sent of the page.
  let text = "";
  const show = (next) => {
    text = next;
    const fresh = new DOMParser().parseFromString(`<main>${text}</main>`, "text/html").querySelector("main");
    merge(main, fresh);
    ages();
    document.documentElement.dataset.updates = Number(document.documentElement.dataset.updates || 0) + 1;
  };
  const open = () => {
    source = new EventSource("/live?page=" + encodeURIComponent(page));
    source.onopen = () => say("");
    source.addEventListener("page", (event) => show(event.data));
    source.addEventListener("change", (event) => {
      const { of, pieces } = JSON.parse(event.data);
      // A change of another text: all of it is sent on a new stream.
      if (text.length !== of) { source.close(); open(); return; }
      show(pieces.map((piece) => typeof piece === "string" ? piece : text.slice(piece[0], piece[0] + piece[1])).join(""));
    });
    source.addEventListener("over", () => { source.close(); location.reload(); });
    source.onerror = () => {
      say("The portal does not answer; this page goes on by itself when it does.");
      // The browser tries again by itself, but not after it was refused: then the session is over, or another server is.
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(() => fetch(page, { redirect: "manual" }).then(
          (answer) => { if (answer.ok) open(); else if (answer.type === "opaqueredirect") location.reload(); else open(); },
          open), 3000);
      }
    };
  };
  open();
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
})();
