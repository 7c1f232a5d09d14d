/* What the pages do in a browser; without this file they are whole, only longer.

   copy       a button at each block of code
   fold       long outputs and long code show their beginning, with a button for the rest; sections
              that are worked on in the notebook (exercises, your own compiler) open on a click, and
              so do the last ones of a page that is still too long
   follow     the contents mark the heading that is being read
*/
(() => {
  const LIMITS = { output: 230, table: 330, input: 290, picture: 620 };   // pixels; what is higher is folded
  const TALLEST = 8900, WIDE = 960;
  const FOLDED = /^(Exercises|Your own compiler|Projects|What else lives here|What real PyTorch)/;

  const button = (words, look, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = look;
    made.textContent = words;
    made.onclick = () => act(made);
    return made;
  };

  const copy = () => {
    for (const pre of document.querySelectorAll(".bd-article div.highlight > pre")) {
      const place = pre.parentElement;
      place.append(button("Copy", "copy", async made => {
        try {
          await navigator.clipboard.writeText(pre.textContent.replace(/\n$/, ""));
          made.textContent = "Copied";
        } catch (refused) {
          getSelection().selectAllChildren(pre);
          made.textContent = "Selected";
        }
        setTimeout(() => { made.textContent = "Copy"; }, 1500);
      }));
    }
  };

  const clip = (part, limit) => {
    const whole = part.getBoundingClientRect().height;
    if (whole <= limit * 1.25) return;
    part.classList.add("clipped");
    part.style.setProperty("--shown", `${Math.round(limit * 0.8)}px`);
    const open = button("Show all", "unfold", made => {
      const isClipped = part.classList.toggle("clipped");
      made.textContent = isClipped ? "Show all" : "Show less";
      made.setAttribute("aria-expanded", String(!isClipped));
    });
    open.setAttribute("aria-expanded", "false");
    part.after(open);
    part.addEventListener("focusin", event => {       // the keyboard reaches what is hidden
      if (event.target !== part && part.classList.contains("clipped")) open.click();
    });
  };

  const fold = () => {
    for (const part of document.querySelectorAll(".bd-article .cell_output > *")) {
      if (part.matches("img") || part.querySelector(".stepper, .drawing")) continue;   // seen whole
      const kind = part.querySelector("img, .picture") ? "picture" : part.querySelector("table") ? "table" : "output";
      clip(part, LIMITS[kind]);
    }
    for (const part of document.querySelectorAll(".bd-article .cell_input")) clip(part, LIMITS.input);
    const headings = [...document.querySelectorAll(".bd-article section > h2")];
    for (const heading of headings.filter(each => FOLDED.test(each.textContent))) foldSection(heading);
    const isLong = () => document.documentElement.scrollHeight > TALLEST;
    const others = headings.filter(each => !each.closest("summary") && !/^Recap/.test(each.textContent));
    while (innerWidth >= WIDE && others.length > 1 && isLong()) foldSection(others.pop());
  };

  const foldSection = heading => {
    const section = heading.parentElement, details = document.createElement("details");
    const summary = document.createElement("summary");
    details.className = "section";
    summary.append(heading);
    details.append(summary, ...section.childNodes);
    section.append(details);
  };

  const openAt = () => {                             // a link into something folded opens it
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const inside = target.matches("section") && target.querySelector(":scope > details.section");
    for (let at = inside || target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
      if (at.classList.contains("clipped")) at.nextElementSibling.click();
    }
    target.scrollIntoView();
  };

  const follow = () => {
    const links = [...document.querySelectorAll("nav.page-toc a.nav-link")];
    const places = links.map(link => document.getElementById(decodeURIComponent(link.hash.slice(1))));
    const padding = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;
    const mark = () => {
      let now = 0;
      places.forEach((place, n) => {
        const heading = place && (place.querySelector("h2, h3") || place);
        const at = heading && heading.getBoundingClientRect();
        if (at && (at.height || at.top) && at.top < padding + 40) now = n;
      });
      const isEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
      if (isEnd && scrollY > 0) now = links.length - 1;
      links.forEach((link, n) => {
        if (n === now) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      });
    };
    let waits = 0;
    const later = () => {                             // now, and when the page has come to rest
      requestAnimationFrame(mark);
      clearTimeout(waits);
      waits = setTimeout(mark, 100);
    };
    addEventListener("scroll", later, { passive: true });
    new ResizeObserver(later).observe(document.body);
    if (links.length) mark();
  };

  const start = () => { copy(); fold(); follow(); openAt(); };
  addEventListener("hashchange", openAt);
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
