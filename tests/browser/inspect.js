// Run in a page by crawler.py after axe-core; reports what is wrong with it, what it links to and what it can be linked at.
const [width, done] = arguments;
const problems = [];
const article = document.querySelector("article") || document.body;

function name(element) {
  const id = element.id ? `#${element.id}` : [...element.classList].map((c) => `.${c}`).join("");
  return element.tagName.toLowerCase() + id;
}

// Content in a box that scrolls can be reached; the copy of a formula for screen readers is clipped on purpose.
function reachable(element) {
  for (let e = element.parentElement; e && e !== article; e = e.parentElement) {
    const style = getComputedStyle(e);
    if (["auto", "scroll"].includes(style.overflowX)) return e.getBoundingClientRect().right <= width + 1;
    if (style.clip !== "auto" || style.clipPath !== "none") return true;
  }
  return false;
}

// Where an element's content ends on the right, what its own box cuts off included; a box that scrolls ends at its border.
function edge(element) {
  const box = element.getBoundingClientRect();
  if (box.width <= 1) return 0;
  const scrolls = ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  return scrolls ? box.right : Math.max(box.right, box.left + element.scrollWidth);
}

async function images() {
  await Promise.all([...document.images].map(async (image) => {
    image.loading = "eager";
    try {
      await image.decode();
    } catch {
      problems.push(`image not loaded: ${image.src.slice(0, 120)}`);
    }
  }));
  for (const image of article.querySelectorAll("img")) {
    if (image.alt.trim().length < 8) problems.push(`image without alternative text: ${image.src.slice(0, 120)}`);
  }
}

function overflow() {
  const page = document.documentElement.scrollWidth;
  if (page > width + 1) problems.push(`the page is ${page} px wide in a window of ${width} px`);
  const wide = [...article.querySelectorAll("*")].filter((e) => edge(e) > width + 1 && !reachable(e));
  // a wide element's contents are wide as well: the outermost are enough
  const outer = wide.filter((e) => !wide.includes(e.parentElement));
  for (const e of outer.slice(0, 3)) {
    problems.push(`${name(e)} ends at ${Math.round(edge(e))} px of ${width}`);
  }
  for (const table of article.querySelectorAll("table")) {
    const box = table.getBoundingClientRect();
    if (box.right > article.getBoundingClientRect().right + 1 && !reachable(table)) {
      problems.push(`table overflows the text: ${name(table)} in ${name(table.parentElement)}`);
    }
  }
}

async function accessibility() {
  const found = await axe.run(document, { resultTypes: ["violations", "incomplete"], preload: false });
  // text of the very colour of its ground may be hidden on purpose, so axe-core leaves it to us; here it never is
  for (const node of found.incomplete.filter((rule) => rule.id === "color-contrast").flatMap((rule) => rule.nodes)) {
    const same = node.any.some((check) => check.data?.messageKey === "equalRatio");
    if (same) problems.push(`text of the colour of its ground: ${node.target.flat().join(" ")}`);
  }
  for (const rule of found.violations) {
    if (!["serious", "critical"].includes(rule.impact)) continue;
    for (const node of rule.nodes) {
      problems.push({ rule: rule.id, target: node.target.flat().join(" "), why: node.failureSummary });
    }
  }
}

Promise.resolve()
  .then(images)
  .then(overflow)
  .then(accessibility)
  .catch((error) => problems.push(`the page could not be inspected: ${error}`))
  .then(() => done({
    problems,
    links: [...document.querySelectorAll("a[href]")].map((a) => a.href),
    places: [...document.querySelectorAll("[id], a[name]")].map((e) => e.id || e.name),
  }));
