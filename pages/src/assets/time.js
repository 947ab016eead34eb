// Moves through a recording without a new page: the slider and the steps fetch the page of their instant and change what
// differs of this one, so that focus and scroll stay. Without this script the same form and links do it.
"use strict";
(() => {
  const slider = document.getElementById("at");
  const form = document.getElementById("time-form");
  if (!slider || !form) return;

  // As the server writes an instant.
  const two = (n) => String(n).padStart(2, "0");
  const text = (ms) => {
    if (slider.dataset.clock === "unix") return new Date(ms).toISOString().slice(0, 19).replace("T", " ") + " UTC";
    const s = Math.floor(ms / 1000), rest = ms % 1000;
    const clock = `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
    return rest === 0 ? clock : `${clock}.${String(rest).padStart(3, "0")}`;
  };
  const tell = () => {
    const at = text(Math.round(Number(slider.value)));
    document.getElementById("instant").textContent = at;
    slider.setAttribute("aria-valuetext", at);
  };

  const PARTS = ["header nav", "header .now", "#story", "main"];
  const STEPS = ["begin", "earlier", "later", "end"];
  let newest = 0;
  const go = async (address) => {
    const mine = ++newest;
    document.documentElement.setAttribute("aria-busy", "true");
    let page;
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" } });
      if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
      page = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      location.assign(address);
      return;
    }
    // Who moves on before the answer has come wants the newer one.
    if (mine !== newest) return;
    if (!page.getElementById("time")) { location.assign(address); return; }
    const open = new Set([...document.querySelectorAll("main details[open][id]")].map((one) => one.id));
    for (const part of PARTS) {
      const old = document.querySelector(part), fresh = page.querySelector(part);
      if (old && fresh) old.replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
    }
    for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
    for (const id of STEPS) {
      const old = document.getElementById(id), fresh = page.getElementById(id);
      for (const name of ["href", "role", "aria-disabled", "tabindex"]) {
        if (fresh.hasAttribute(name)) old.setAttribute(name, fresh.getAttribute(name)); else old.removeAttribute(name);
      }
    }
    document.querySelector("header .brand").href = page.querySelector("header .brand").getAttribute("href");
    const at = page.getElementById("at");
    for (const name of ["min", "max"]) slider[name] = at[name];
    slider.value = at.value;
    tell();
    document.title = page.title;
    history.replaceState(null, "", address);
    document.documentElement.removeAttribute("aria-busy");
    document.documentElement.dataset.moves = Number(document.documentElement.dataset.moves || 0) + 1;
  };
  const address = () => {
    const pairs = new URLSearchParams(new FormData(form));
    pairs.set("at", String(Math.round(Number(slider.value))));
    return `${form.getAttribute("action")}?${pairs}`;
  };

  slider.addEventListener("input", tell);
  slider.addEventListener("change", () => go(address()));
  form.addEventListener("submit", (event) => { event.preventDefault(); go(address()); });
  for (const id of STEPS) {
    document.getElementById(id).addEventListener("click", (event) => {
      const step = event.currentTarget;
      if (event.ctrlKey || event.metaKey || event.shiftKey || !step.hasAttribute("href")) return;
      event.preventDefault();
      go(step.getAttribute("href"));
    });
  }
  // The button is for those without this script.
  document.getElementById("go").hidden = true;
})();
