"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const table = byId("ui-claims");
  const claims = [...table.tBodies];
  const filter = byId("ui-filter");
  const unexpected = byId("ui-unexpected");
  const chips = [...document.querySelectorAll(".chip")];
  const openAll = byId("ui-open-all");
  const details = (claim) => claim.querySelector("details");
  const rank = { refuted: 0, error: 1, "ill-formed": 2, undecided: 3, vacuous: 4, holds: 5, proved: 6 };

  document.documentElement.classList.add("js");

  // Filter: every word must occur; pressed chips choose verdicts, none pressed means all.
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = new Set(chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.verdict));
    let shown = 0;
    for (const claim of claims) {
      const text = claim.dataset.search.toLowerCase();
      const fits =
        words.every((word) => text.includes(word)) &&
        (!chosen.size || chosen.has(claim.dataset.verdict)) &&
        (!unexpected.checked || claim.dataset.expected === "no");
      claim.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    byId("ui-shown").textContent = shown === claims.length ? `${shown} claims` : `${shown} of ${claims.length} claims`;
    byId("ui-none").hidden = shown > 0;
  };
  const reset = () => {
    filter.value = "";
    unexpected.checked = false;
    chips.forEach((chip) => chip.setAttribute("aria-pressed", "false"));
    apply();
  };
  filter.addEventListener("input", apply);
  unexpected.addEventListener("change", apply);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }

  // Sort: first click ascending, second descending, third back to the order of the file.
  const key = (claim, head) => {
    const value = claim.dataset[head.dataset.sort];
    if (head.dataset.sort === "verdict") return rank[value];
    if (!head.hasAttribute("data-number")) return value;
    return value === "" ? null : Number(value);
  };
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" ? a - b || 0 : a.localeCompare(b, "en", { numeric: true });
  };
  const heads = [...table.tHead.rows[0].cells];
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
      const order = next === undefined ? "ascending" : next;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      let rows = claims;
      if (order) {
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        rows = [...claims].sort((a, b) => {
          const [x, y] = [key(a, head), key(b, head)];
          return x === null || y === null ? compare(x, y) : sign * compare(x, y);
        });
      }
      table.append(...rows);
    });
  }

  // Rows open their details; a button carries the state for keyboards and screen readers.
  for (const claim of claims) {
    const row = claim.rows[0];
    const panel = details(claim);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "toggle";
    button.setAttribute("aria-label", `Details of ${claim.dataset.id}`);
    button.setAttribute("aria-expanded", "false");
    row.cells[0].prepend(button);
    panel.addEventListener("toggle", () => {
      button.setAttribute("aria-expanded", String(panel.open));
      claim.classList.toggle("open", panel.open);
    });
    row.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      panel.open = !panel.open;
    });
  }
  openAll.addEventListener("click", () => {
    const visible = claims.filter((claim) => !claim.hidden);
    const open = visible.some((claim) => !details(claim).open);
    visible.forEach((claim) => (details(claim).open = open));
    openAll.textContent = open ? "close all" : "open all";
  });

  // A script is copied as it stands; where the browser keeps the clipboard to itself, it is selected.
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const shown = button.parentElement.querySelector("pre");
      try {
        await navigator.clipboard.writeText(shown.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(shown);
        button.textContent = "selected";
      }
    });
  }

  // A link to a claim shows it, whatever the filter says.
  const follow = () => {
    let name = "";
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      return;
    }
    const claim = claims.find((candidate) => candidate.id === name);
    if (!claim) return;
    if (claim.hidden) reset();
    claims.forEach((other) => other.classList.toggle("target", other === claim));
    details(claim).open = true;
    claim.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  table.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      filter.focus();
    } else if (event.key === "Escape" && document.activeElement === filter) {
      reset();
      filter.blur();
    }
  });

  // On paper, everything that is shown is open.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = claims
      .filter((claim) => !claim.hidden)
      .flatMap((claim) => [...claim.querySelectorAll("details:not([open])")]);
    closed.forEach((panel) => (panel.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((panel) => (panel.open = false)));

  apply();
  follow();
})();
