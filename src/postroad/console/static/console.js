// The theme is kept in a cookie, because the server draws the first picture; the map is updated in place,
// because a picture that is drawn anew would start its movement anew.
(() => {
  const setCookie = (name, value) => {
    document.cookie = `${name}=${value}; path=/console; max-age=31536000; samesite=lax`;
  };
  const isDark = () => document.body.classList.contains("body--dark");
  document.addEventListener("click", (event) => {
    const theme = event.target.closest("#theme");
    if (theme) {
      const dark = !isDark();
      setCookie("postroad_theme", dark ? "dark" : "light");
      // Until the components are there and have heard from the server, they would set it back.
      if (window.Quasar && document.getElementById("app")?.__vue_app__ && window.socket?.connected) Quasar.Dark.set(dark);
      else location.reload();
    }
    // Tables are drawn anew all the time, so their buttons are heard from here.
    const row = event.target.closest("button[data-verb]");
    if (row && window.emitEvent) emitEvent("row-action", { verb: row.dataset.verb, key: row.dataset.key });
    const menu = event.target.closest("#menu");
    if (menu) {
      const open = document.getElementById("places").classList.toggle("open");
      menu.setAttribute("aria-expanded", String(open));
    }
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
    const field = document.getElementById("find");
    if (!field || !((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping))) return;
    event.preventDefault();
    document.getElementById("places").classList.add("open");
    field.focus();
    field.select();
  });
  // The login page has no Quasar: it follows the cookie, else the system.
  if (document.querySelector("main.login")) {
    const chosen = (document.cookie.match(/postroad_theme=(\w+)/) || [])[1];
    const system = matchMedia("(prefers-color-scheme: dark)").matches;
    document.body.classList.toggle("body--dark", chosen ? chosen === "dark" : system);
  }
  window.postroadMap = {
    update(edges, nodes) {
      for (const [id, edge] of Object.entries(edges)) {
        // There is a picture and, for phones, a list, with the same edges.
        for (const label of document.querySelectorAll(`.map [data-rate="${id}"]`)) label.textContent = edge.label;
        for (const flow of document.querySelectorAll(`.map [data-flow="${id}"]`)) {
          flow.classList.toggle("moving", edge.rate > 0);
          // Eyes cannot follow more: the pace grows with the logarithm of the rate.
          flow.style.setProperty("--pace", `${Math.max(0.35, 2.4 - Math.log10(1 + edge.rate)).toFixed(2)}s`);
        }
      }
      for (const [id, node] of Object.entries(nodes)) {
        for (const element of document.querySelectorAll(`.map [data-node="${CSS.escape(id)}"]`)) {
          const most = Number(element.dataset.letters);
          element.querySelector(".sub").textContent = node.note.length > most ? `${node.note.slice(0, most - 1)}…` : node.note;
          element.classList.toggle("bad", node.bad);
        }
      }
    },
  };

  // Times come as they are on the server and are written in the browser's zone, like those of the charts.
  const pad = (value) => String(value).padStart(2, "0");
  const localize = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
      const at = new Date(time.dateTime);
      const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
      const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
      const seconds = `${clock}:${pad(at.getSeconds())}`;
      time.textContent = at.toDateString() === new Date().toDateString() ? seconds : `${day} ${clock}`;
      time.title = `${day} ${seconds} (${zone()})`;
      time.dataset.local = "";
    }
    for (const label of root.querySelectorAll("[data-zone]:empty")) label.textContent = label.dataset.zone.replace("{zone}", zone());
  };
  const zone = () => {
    const minutes = -new Date().getTimezoneOffset();
    const offset = `UTC${minutes < 0 ? "−" : "+"}${pad(Math.floor(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
    return `${Intl.DateTimeFormat().resolvedOptions().timeZone}, ${offset}`;
  };

  // Changes `from` into `to` and touches only what differs, so that focus and scroll positions stay.
  const key = (row) => [...row.cells].slice(0, 2).map((cell) => cell.textContent).join("|");
  const morph = (from, to) => {
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    const fresh = [...to.childNodes];
    const wanted = new Set(from.nodeName === "TBODY" ? fresh.map(key) : []);
    if (wanted.size > 0 && wanted.size === fresh.length) {
      // Rows keep their identity when others come and go above them.
      for (const row of [...from.children]) if (!wanted.has(key(row))) row.remove();
      const rows = new Map([...from.children].map((row) => [key(row), row]));
      fresh.forEach((row, index) => {
        const known = rows.get(key(row));
        const here = from.children[index];
        if (known && known !== here && known.isConnected) from.insertBefore(known, here);
        else if (!known && here) from.insertBefore(row.cloneNode(true), here);
      });
    }
    const old = [...from.childNodes];
    fresh.forEach((node, index) => {
      const known = old[index];
      if (!known) from.appendChild(node);
      else if (known.nodeName !== node.nodeName) known.replaceWith(node);
      else if (known.nodeType === Node.ELEMENT_NODE) morph(known, node);
      else if (known.data !== node.data) known.data = node.data;
    });
    for (const node of old.slice(fresh.length)) node.remove();
  };
  window.postroadLive = (id, html) => {
    const shown = document.getElementById(id);
    if (!shown) return;
    const wanted = shown.cloneNode(false);
    wanted.innerHTML = html;
    localize(wanted);
    const focused = document.activeElement;
    morph(shown, wanted);
    showAllMore(shown);
    // A row that has moved has lost the focus.
    if (focused !== document.activeElement && shown.contains(focused)) focused.focus({ preventScroll: true });
  };
  const showTab = () => {
    for (const tab of document.querySelectorAll('.tabs a[aria-current="page"]:not([data-shown])')) {
      tab.dataset.shown = "";
      // On a phone the tabs scroll sideways, and the page must not scroll with them.
      tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;
    }
  };
  // A table that is cut off on the right says so; see console.css.
  const showMore = (table) => table.toggleAttribute("data-more", table.scrollWidth - table.clientWidth - table.scrollLeft > 1);
  const showAllMore = (root) => root.querySelectorAll(".table").forEach(showMore);
  document.addEventListener("scroll", (event) => { if (event.target.matches?.(".table")) showMore(event.target); }, true);
  window.addEventListener("resize", () => showAllMore(document));
  const watch = () => { localize(document); showTab(); showAllMore(document); };
  new MutationObserver(watch).observe(document.documentElement, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", watch);
})();
