// Without scripts a cell is a link to its section.
(() => {
  "use strict";
  const body = document.body;
  const panel = document.querySelector(".cells");
  const table = document.querySelector(".matrix");
  if (!panel || !table) return;
  body.classList.add("js");
  const links = [...table.querySelectorAll("td a")];
  let open = null;

  const linkTo = (id) => links.find((link) => link.hash === "#" + id);

  function show(id) {
    const section = id ? document.getElementById(id) : null;
    if (open) open.classList.remove("open");
    for (const link of links) link.removeAttribute("aria-current");
    open = section && panel.contains(section) ? section : null;
    panel.classList.toggle("shown", open !== null);
    body.classList.toggle("panel-open", open !== null);
    if (!open) return;
    open.classList.add("open");
    panel.scrollTop = 0;
    const link = linkTo(id);
    if (link) {
      link.setAttribute("aria-current", "true");
      setTabStop(link);
    }
  }

  // Roving tabindex: Tab stops once at the table, the arrow keys move between cells.
  function setTabStop(target) {
    for (const link of links) link.tabIndex = link === target ? 0 : -1;
  }

  function storeHash(id) {
    try {
      history.replaceState(null, "", id ? "#" + id : location.pathname);
    } catch {
      // Some browsers refuse to change the address of a local file.
    }
  }

  function neighbour(link, right, down) {
    const cell = link.closest("td");
    let row = cell.parentElement;
    let at = cell.cellIndex;
    for (;;) {
      at += right;
      row = down > 0 ? row.nextElementSibling : down < 0 ? row.previousElementSibling : row;
      const next = row && row.cells[at];
      if (!next || next.tagName !== "TD") return null;
      const found = row.hidden || next.hidden ? null : next.querySelector("a");
      if (found) return found;
    }
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#c']");
    if (link) {
      event.preventDefault();
      const id = link.hash.slice(1);
      show(id);
      storeHash(id);
      const cell = linkTo(id);
      if (cell) cell.focus({ preventScroll: true });
      reveal(cell);
    } else if (event.target.closest(".changes")) {
      toggleChanged(event.target.closest(".changes"));
    } else if (event.target.closest(".close")) {
      close();
    }
  });

  // Hides every row and column in which nothing changed.
  function toggleChanged(button) {
    const only = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(only));
    table.classList.toggle("only-changed", only);
    const rows = [...table.rows];
    const kept = new Set([0]);
    for (const cell of table.querySelectorAll("td.changed")) kept.add(cell.cellIndex);
    for (const row of rows) {
      row.hidden = only && row !== rows[0] && !row.querySelector(".changed");
      for (const cell of row.cells) cell.hidden = only && !kept.has(cell.cellIndex);
    }
    setTabStop(table.querySelector(only ? "td.changed a" : "td a"));
  }

  function reveal(link) {
    if (!link) return;
    const box = link.getBoundingClientRect();
    const edge = open ? panel.getBoundingClientRect().top : window.innerHeight;
    if (box.bottom > edge || box.top < 0) link.scrollIntoView({ block: "start", inline: "nearest" });
  }

  function close() {
    const link = open && linkTo(open.id);
    show(null);
    storeHash("");
    if (link) link.focus();
  }

  table.addEventListener("focusin", (event) => {
    const link = event.target.closest("td a");
    if (link && open && link.hash !== "#" + open.id) {
      show(link.hash.slice(1));
      storeHash(open.id);
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && open) return close();
    const link = event.target.closest && event.target.closest(".matrix td a");
    if (!link || event.ctrlKey || event.altKey || event.metaKey) return;
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = neighbour(link, ...move);
    if (!next) return;
    show(next.hash.slice(1));
    storeHash(open.id);
    next.focus({ preventScroll: true });
    reveal(next);
  });

  // A printed page has every cause with its cells.
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
  window.addEventListener("hashchange", () => show(location.hash.slice(1)));
  if (links.length) setTabStop(links[0]);
  if (location.hash.startsWith("#c")) {
    show(location.hash.slice(1));
    reveal(open && linkTo(open.id));
  }
})();
