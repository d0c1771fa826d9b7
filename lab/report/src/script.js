// Theme button and tooltips. The page works without them: the theme follows the system, and the
// browser shows the SVG titles.
(() => {
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const memory = (value) => {
    // Some browsers deny storage to local files.
    try {
      return value ? localStorage.setItem("leeward-theme", value) : localStorage.getItem("leeward-theme");
    } catch {
      return null;
    }
  };
  const wanted = memory() || location.hash.replace("#theme-", "");
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.hidden = false;
    button.title = "Switch between the light and the dark style";
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      memory(root.dataset.theme);
      name();
    });
    name();

    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    document.body.append(tip);
    document.addEventListener("pointerover", (event) => {
      const hit = event.target.closest?.(".hit");
      if (!hit) { tip.hidden = true; return; }
      const title = hit.querySelector("title");
      if (title) { hit.dataset.tip = title.textContent; title.remove(); }
      const [first, ...rest] = hit.dataset.tip.split("\n");
      const strong = document.createElement("strong");
      strong.textContent = first;
      tip.replaceChildren(strong, ...rest.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
      tip.hidden = false;
      const box = hit.getBoundingClientRect();
      const left = Math.min(Math.max(box.left + box.width / 2 - tip.offsetWidth / 2, 8), innerWidth - tip.offsetWidth - 8);
      const above = box.top - tip.offsetHeight - 6;
      tip.style.left = `${left + scrollX}px`;
      tip.style.top = `${(above < 4 ? Math.min(box.top, innerHeight) + 14 : above) + scrollY}px`;
    });
  });
})();
