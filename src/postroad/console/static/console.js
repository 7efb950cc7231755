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
  // The login page has no Quasar: it follows the cookie, else the system.
  if (document.querySelector("main.login")) {
    const chosen = (document.cookie.match(/postroad_theme=(\w+)/) || [])[1];
    const system = matchMedia("(prefers-color-scheme: dark)").matches;
    document.body.classList.toggle("body--dark", chosen ? chosen === "dark" : system);
  }
  window.postroadMap = {
    update(edges, nodes) {
      for (const [id, edge] of Object.entries(edges)) {
        // There are two pictures, a wide and a narrow one, with the same edges.
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
})();
