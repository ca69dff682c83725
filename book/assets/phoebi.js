"use strict";

document.addEventListener("DOMContentLoaded", () => {
  // "Show code cell source" says more to a screen reader than the name that hides it
  for (const summary of document.querySelectorAll("summary[aria-label]")) summary.removeAttribute("aria-label");

  // Range inputs that switch between pictures drawn beforehand (phoebi_lib/sliders.py writes them).
  // Without this script a page shows one picture of each and no input.
  for (const slider of document.querySelectorAll(".phoebi-slider")) {
    const stops = JSON.parse(slider.querySelector("script").textContent);
    const input = slider.querySelector("input");
    const image = slider.querySelector("img");
    const value = slider.querySelector("label span");

    const show = () => {
      const stop = stops[input.value];
      image.src = stop.src;
      image.alt = stop.text;
      value.textContent = stop.value;
      // what a screen reader says while the input moves: the value, and what the picture shows there
      input.setAttribute("aria-valuetext", `${stop.value}: ${stop.text}`);
    };

    input.addEventListener("input", show);
    slider.querySelector(".phoebi-slider-control").hidden = false;
    slider.querySelector(".phoebi-slider-static").hidden = true;
    show(); // some browsers keep the input's place over a reload
  }
});
