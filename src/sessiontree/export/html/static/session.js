(function () {
  "use strict";
  var bar = document.getElementById("tools");
  var box = document.getElementById("find");
  var count = document.getElementById("found");
  var all = Array.prototype.slice.call(document.querySelectorAll("main article"));
  var texts = null;
  var timer = 0;
  bar.hidden = false;

  function find() {
    var wanted = box.value.trim().toLowerCase();
    if (!texts && wanted) texts = all.map(function (one) { return one.textContent.toLowerCase(); });
    var found = 0;
    all.forEach(function (one, at) {
      var fits = !wanted || texts[at].indexOf(wanted) >= 0;
      one.classList.toggle("gone", !fits);
      if (fits) found += 1;
    });
    count.textContent = wanted ? found + " of " + all.length : "";
  }

  function fold(open) {
    document.querySelectorAll("main details").forEach(function (one) { one.open = open; });
  }

  box.addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(find, 120); });
  document.getElementById("unfold").addEventListener("click", function () { fold(true); });
  document.getElementById("fold").addEventListener("click", function () { fold(false); });
  document.addEventListener("keydown", function (event) {
    var typing = /^(input|textarea)$/i.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); box.focus(); }
    if (event.key === "Escape" && typing) { box.value = ""; find(); box.blur(); }
  });
  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    folded.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (one) { one.open = false; });
  });
})();
