/* The list: filters while typing, previews, and follows the library. */
(function () {
  "use strict";
  var form = document.getElementById("search"), box = document.getElementById("box"), rows = document.getElementById("rows");
  var preview = document.getElementById("preview"), number = 0, shown = "";

  function address() {
    var values = new URLSearchParams(new FormData(form)), start = new URLSearchParams(location.search).get("start");
    if (start && !rows.dataset.typed) values.set("start", start);
    return values.toString();
  }

  function load() {
    var mine = ++number, query = address(), active = document.activeElement, focused = active && active.closest("li[data-key]");
    var part = active && active.dataset.row ? '[data-row="' + active.dataset.row + '"]' : "a";
    return fetch("/rows?" + query).then(function (response) { return response.text(); }).then(function (text) {
      if (mine !== number) return;
      rows.innerHTML = text;
      history.replaceState(null, "", "/?" + query);
      if (focused) {
        var again = rows.querySelector('li[data-key="' + focused.dataset.key + '"] ' + part);
        if (again) again.focus();
      }
    });
  }

  var type = page.later(function () { rows.dataset.typed = "1"; load(); }, 120);
  box.addEventListener("input", type);
  form.addEventListener("change", function () { rows.dataset.typed = "1"; load(); });
  form.addEventListener("submit", function (event) {
    event.preventDefault();
    var first = rows.querySelector("a.session");
    load().then(function () { first = rows.querySelector("a.session"); if (first) first.focus(); });
  });
  box.addEventListener("keydown", function (event) {
    if (event.key === "Tab" && !event.shiftKey && box.value && box.selectionStart === box.value.length && /\S$/.test(box.value)) {
      event.preventDefault();
      fetch("/complete?q=" + encodeURIComponent(box.value)).then(function (response) { return response.json(); }).then(function (found) {
        if (found.completed) { box.value = found.completed; type(); }
        else { var first = rows.querySelector("a.session"); if (first) first.focus(); }
      });
    }
    if (event.key === "ArrowDown") { var first = rows.querySelector("a.session"); if (first) { event.preventDefault(); first.focus(); } }
    if (event.key === "Escape") { box.value = ""; type(); }
  });
  rows.addEventListener("keydown", function (event) {
    var step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    var links = Array.prototype.slice.call(rows.querySelectorAll("a.session")), next = links[links.indexOf(document.activeElement) + step];
    event.preventDefault();
    if (next) next.focus(); else if (step < 0) box.focus();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && !/^(input|textarea|select)$/i.test(event.target.tagName)) { event.preventDefault(); box.focus(); }
  });
  document.querySelectorAll("[data-filter]").forEach(function (button) {
    button.addEventListener("click", function () { box.value = (box.value.trim() + " " + button.dataset.filter).trim() + " "; rows.dataset.typed = "1"; load(); box.focus(); });
  });

  /* Tags and pins of a row */
  var tagging = { name: "tag", title: "Change the tags of the session", arguments: [{ name: "add", kind: "texts" }, { name: "remove", kind: "texts" }] };
  rows.addEventListener("click", function (event) {
    var button = event.target.closest("[data-row]"), key = button && button.closest("li").dataset.key;
    if (!button) return;
    if (button.dataset.row === "tag") pageActions.open(tagging, { remove: "" }, key);
    else pageActions.plan("/s/" + key + "/plan", { action: "pin", arguments: { pinned: button.getAttribute("aria-pressed") !== "true" } });
  });

  var look = page.later(function () {
    var key = shown;
    fetch("/s/" + key + "/preview").then(function (response) { return response.ok ? response.text() : ""; }).then(function (text) {
      if (text && key === shown) preview.innerHTML = text;
    });
  }, 120);
  function want(event) {
    var row = event.target.closest("li[data-key]");
    if (row && row.dataset.key !== shown) { shown = row.dataset.key; look(); }
  }
  rows.addEventListener("mouseover", want);
  rows.addEventListener("focusin", want);

  var update = page.later(load, 300);
  new EventSource("/events").addEventListener("library", update);
})();
