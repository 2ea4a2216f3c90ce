/* "Find the bug": looks cost points, an answer gets a reply, and solved cases are stored in this browser. A page works
   without all of it: the looks and the answer are in folds. */
(() => {
  "use strict";
  const VERSION = 1, START = 10, KEY = "hooklab-cases";
  const at = (id) => document.getElementById(id);
  const list = (selector) => [...document.querySelectorAll(selector)];

  // ---- what is kept

  let kept = true;
  const fits = (s) => s && Array.isArray(s.looks) && Number.isInteger(s.lost) && s.lost >= 0;
  const fitting = (cases) => Object.fromEntries(Object.entries(cases ?? {}).filter(([, s]) => fits(s)));
  const stored = () => {
    let text = null;
    try { text = localStorage.getItem(KEY); } catch { kept = false; }
    try { return fitting(JSON.parse(text)); } catch { return {}; }
  };
  const keep = (all) => {
    try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { kept = false; }
  };
  const left = (state) => Math.max(1, START - state.looks.length - state.lost);
  const points = (state) => state.done ? left(state) : 0;
  const plural = (n) => n === 1 ? "1 point" : `${n} points`;

  // ---- the page of one case

  const page = at("case");
  const known = window.hooklabCase;

  const startCase = () => {
    const say = at("points");
    if (known?.version !== VERSION || known.name !== page.dataset.name) {
      say.textContent = "The replies for this case could not be loaded, so there are no points here. You can still read the program, the looks, and the answer.";
      return;
    }
    const state = { looks: [], lost: 0, done: false, gaveUp: false, ...stored()[known.name] };
    const form = at("answer"), solution = at("solution"), reply = at("reply"), line = at("line-said");
    const over = () => state.done || state.gaveUp;
    const show = () => {
      say.textContent = (state.done ? `Solved: ${plural(points(state))} of ${START}.` :
        state.gaveUp ? "The answer was shown, so this case has no points." :
        `${plural(left(state))} of ${START} left. A look costs one, a wrong answer two.`) +
        (kept ? "" : " This browser doesn't store data, so you lose your points when you leave the page.");
      for (const look of list(".look"))
        look.querySelector(".cost").textContent = over() || state.looks.includes(look.dataset.look) ? "" : "1 point";
      solution.hidden = !over();
    };
    const change = () => {
      keep({ ...stored(), [known.name]: state });
      show();
    };
    const reveal = () => {
      solution.open = true;
      solution.querySelector("summary").focus();
    };
    document.body.classList.add("plays");
    form.hidden = false;
    for (const look of list(".look"))
      look.addEventListener("toggle", () => {
        if (!look.open || over() || state.looks.includes(look.dataset.look)) return;
        state.looks.push(look.dataset.look);
        change();
      });
    for (const input of list("input[name=line]"))
      input.addEventListener("change", () => { line.textContent = `You chose line ${input.value}.`; });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const chosen = form.querySelector("input[name=choice]:checked"), input = document.querySelector("input[name=line]:checked");
      if (!chosen) { reply.textContent = "Also choose what is wrong."; return; }
      const choice = known.choices[chosen.value], nothing = choice.words.startsWith("Nothing is wrong");
      if (!input && !nothing) { reply.textContent = "Also choose the faulty line: click it in the program."; return; }
      const here = nothing || known.lines.includes(Number(input.value));
      if (choice.right && here) {
        if (!over()) state.done = true;
        change();
        reply.textContent = state.done ? `Right. ${plural(points(state))}.` : "Right.";
        reveal();
        return;
      }
      const costs = over() ? 0 : choice.right ? 1 : 2;
      state.lost += costs;
      change();
      reply.textContent = choice.right ? `That is what's wrong, but not in this line.${costs ? " It costs one point." : ""}` :
        `${here && !nothing ? "This is the right line, but that isn't what's wrong. " : "No. "}${choice.reply}`;
    });
    at("give-up").addEventListener("click", () => {
      if (!over()) state.gaveUp = true;
      change();
      reveal();
    });
    show();
  };

  // ---- the list of all cases

  const startList = () => {
    const area = at("case-copy"), say = at("case-score");
    const show = () => {
      const all = stored();
      for (const item of list("[data-case]")) {
        const state = all[item.dataset.case], mark = item.querySelector(".state") ?? item.appendChild(document.createElement("b"));
        mark.className = "state";
        mark.textContent = !state ? "" : state.done ? plural(points(state)) : state.gaveUp ? "seen" : "started";
      }
      const solved = Object.values(all).filter((s) => s.done);
      say.textContent = (solved.length ? `${solved.length} solved, ${plural(solved.reduce((sum, s) => sum + points(s), 0))}.` : "None solved yet.") +
        (kept ? "" : " This browser doesn't store data between pages.");
    };
    at("case-tools").hidden = false;
    at("case-export").addEventListener("click", () => {
      area.value = JSON.stringify({ version: VERSION, cases: stored() });
      area.select();
      navigator.clipboard?.writeText(area.value).catch(() => {});
    });
    at("case-import").addEventListener("click", () => {
      let found = null;
      try { found = JSON.parse(area.value); } catch { /* said below */ }
      const rows = found?.version === VERSION && found.cases && typeof found.cases === "object" ? Object.values(found.cases) : null;
      if (!rows?.every(fits)) { say.textContent = "This isn't progress for these cases: paste the text from “Copy my progress”."; return; }
      keep({ ...stored(), ...found.cases });
      show();
    });
    show();
  };

  if (page) startCase();
  else if (at("case-tools")) startList();
})();
