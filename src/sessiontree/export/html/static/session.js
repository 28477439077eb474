/* Finds text in a page, folds and unfolds, and shows the picture of branches that an exported file contains. */
(function () {
  "use strict";
  var bar = document.getElementById("tools");
  var box = document.getElementById("find");
  var count = document.getElementById("found");
  var timer = 0;
  if (!bar) return;
  bar.hidden = false;

  function find() {
    var wanted = box.value.trim().toLowerCase(), found = 0, all = document.querySelectorAll("main article");
    all.forEach(function (one) {
      var fits = !wanted || one.textContent.toLowerCase().indexOf(wanted) >= 0;
      one.classList.toggle("gone", !fits);
      if (fits) found += 1;
    });
    if (wanted) document.querySelectorAll("main details.compacted").forEach(function (one) { one.open = true; });
    count.textContent = wanted ? found + " of " + all.length : "";
  }

  function fold(open) {
    document.querySelectorAll("main details").forEach(function (one) { one.open = open; });
  }

  function openTarget() {
    var name = decodeURIComponent(location.hash.slice(1)), target = name && document.getElementById(name), at = target;
    var opened = false;
    while (at) { if (at.tagName === "DETAILS" && !at.open) { at.open = true; opened = true; } at = at.parentElement; }
    if (opened) target.scrollIntoView();
  }

  box.addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(find, 120); });
  document.getElementById("unfold").addEventListener("click", function () { fold(true); });
  document.getElementById("fold").addEventListener("click", function () { fold(false); });
  document.addEventListener("keydown", function (event) {
    var typing = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); box.focus(); }
    if (event.key === "Escape" && event.target === box) { box.value = ""; find(); box.blur(); }
  });
  window.addEventListener("hashchange", openTarget);
  openTarget();

  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    folded.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (one) { one.open = false; });
  });

  var data = document.getElementById("graph-data");
  if (data) {
    var ids = {};
    document.querySelectorAll("main [data-id]").forEach(function (one) { ids[one.dataset.id] = one.id; });
    sessionGraph.create(document.getElementById("graph"), JSON.parse(data.textContent), {
      go: function (id) {
        var name = ids[id] || "entry-" + id;
        if (document.getElementById(name)) location.hash = "#" + name;
        else count.textContent = "this entry is not part of the page";
      }
    });
  }
})();
