/* A session: loads windows, follows its growth, and connects the picture of branches. */
(function () {
  "use strict";
  var main = document.getElementById("content"), cards = document.getElementById("cards"), key = main.dataset.key;
  var base = "/s/" + key, live = document.getElementById("live");
  var at = { start: Number(main.dataset.start), end: Number(main.dataset.end), total: Number(main.dataset.total), leaf: main.dataset.leaf };
  var graph = null, asked = {};

  var recovered = main.dataset.recovered ? "recovered=1" : "";
  function leafQuery() { return (at.leaf ? "&leaf=" + encodeURIComponent(at.leaf) : "") + (recovered && "&" + recovered); }

  function load(query) {
    return fetch(base + "/cards?" + query + leafQuery()).then(function (response) {
      if (!response.ok) throw new Error("the entries could not be loaded");
      return response.text().then(function (text) {
        return { text: text, start: Number(response.headers.get("x-start")), end: Number(response.headers.get("x-end")), total: Number(response.headers.get("x-total")) };
      });
    });
  }

  function show() {
    var earlier = document.getElementById("earlier"), later = document.getElementById("later");
    earlier.hidden = at.start === 0;
    later.hidden = at.end >= at.total;
    earlier.querySelector("span").textContent = "(" + at.start + " before)";
    later.querySelector("span").textContent = "(" + (at.total - at.end) + " after)";
    decorate();
  }

  document.getElementById("earlier").addEventListener("click", function (event) {
    event.preventDefault();
    var anchor = cards.firstElementChild, top = anchor ? anchor.getBoundingClientRect().top : 0;
    load("before=" + at.start).then(function (found) {
      cards.insertAdjacentHTML("afterbegin", found.text);
      at.start = found.start;
      show();
      if (anchor) scrollBy(0, anchor.getBoundingClientRect().top - top);
    });
  });
  document.getElementById("later").addEventListener("click", function (event) {
    event.preventDefault();
    load("start=" + at.end).then(function (found) {
      cards.insertAdjacentHTML("beforeend", found.text);
      at.end = found.end;
      at.total = found.total;
      show();
    });
  });

  /* Sub-agents and folds */
  page.loadWhenOpened(main);
  function fold(open) { cards.querySelectorAll("details:not(.subagent)").forEach(function (one) { one.open = open; }); }
  document.getElementById("unfold").addEventListener("click", function () { fold(true); });
  document.getElementById("fold").addEventListener("click", function () { fold(false); });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && !/^(input|textarea|select)$/i.test(event.target.tagName)) { event.preventDefault(); document.getElementById("find").focus(); }
  });
  document.addEventListener("click", function (event) {
    document.querySelectorAll("details.menu[open]").forEach(function (menu) { if (!menu.contains(event.target)) menu.open = false; });
  });
  var closed = [];
  addEventListener("beforeprint", function () { closed = Array.prototype.slice.call(cards.querySelectorAll("details:not([open])")); closed.forEach(function (one) { one.open = true; }); });
  addEventListener("afterprint", function () { closed.forEach(function (one) { one.open = false; }); });

  /* Going to an entry */
  function element(id) {
    var found = cards.querySelector('[data-id="' + CSS.escape(id) + '"]');
    return found || document.getElementById("entry-" + id);
  }
  function go(id) {
    var found = element(id);
    if (!found) { location.href = base + "?" + (recovered && recovered + "&") + "entry=" + encodeURIComponent(id) + "#entry-" + encodeURIComponent(id); return; }
    for (var up = found; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    history.replaceState(null, "", "#" + found.id);
    found.scrollIntoView({ block: "start" });
    cards.querySelectorAll(".chosen").forEach(function (one) { one.classList.remove("chosen"); });
    found.classList.add("chosen");
  }
  document.addEventListener("click", function (event) {
    var link = event.target.closest('#outline a, #cards a[href^="#entry-"]');
    if (!link) return;
    var entry = new URLSearchParams(link.search).get("entry"), name = decodeURIComponent(link.hash.slice(1));
    if (entry && element(entry)) { event.preventDefault(); go(entry); }
    else if (!entry && name && !document.getElementById(name)) { event.preventDefault(); go(name.replace(/^entry-/, "")); }
  });

  /* The picture */
  var ask = page.later(function () {
    var nodes = Object.keys(asked).filter(function (node) { return asked[node] === 1; }).slice(0, 300);
    if (!nodes.length) return;
    nodes.forEach(function (node) { asked[node] = 2; });
    fetch(base + "/rows?nodes=" + nodes.join(",")).then(function (response) { return response.json(); }).then(function (found) {
      Object.keys(found).forEach(function (node) {
        var index = graph.indexOf[node];
        if (index !== undefined) { graph.data.kinds[index] = found[node][0]; graph.data.texts[index] = found[node][1]; }
      });
      graph.tell();
      graph.draw();
      ask();
    });
  }, 60);
  function loadGraph() {
    return fetch(base + "/graph?" + recovered).then(function (response) { return response.json(); }).then(function (data) {
      if (!data.nodes.length) return;
      data.kinds = data.kinds.length ? data.kinds : new Array(data.nodes.length).fill("");
      data.texts = data.texts.length ? data.texts : new Array(data.nodes.length).fill("");
      if (graph) {
        for (var at = 0; at < data.nodes.length; at++) {
          var before = graph.indexOf[data.nodes[at]];
          if (before !== undefined) { data.kinds[at] = graph.data.kinds[before]; data.texts[at] = graph.data.texts[before]; }
        }
        graph.setData(data);
        return;
      }
      graph = sessionGraph.create(document.getElementById("graph"), data, {
        go: go,
        describe: function (graph, first, last) {
          for (var row = first; row < last; row++) {
            var node = graph.rows.nodes[row];
            if (!graph.data.kinds[graph.indexOf[node]] && !asked[node]) asked[node] = 1;
          }
          ask();
        }
      });
      window.sessionPicture = graph;
    });
  }
  loadGraph();

  function loadOutline() {
    fetch(base + "/outline?" + leafQuery().slice(1)).then(function (response) {
      var lost = Number(response.headers.get("x-lost")), line = document.getElementById("recovered");
      if (lost && !recovered) { line.firstElementChild.textContent = lost === 1 ? "The agent itself would lose 1 message of this session." : "The agent itself would lose " + lost + " messages of this session."; line.hidden = false; }
      return response.ok ? response.text() : "";
    }).then(function (text) {
      document.getElementById("outline").innerHTML = text;
    });
  }
  loadOutline();

  /* Growth */
  function lastPrompt() {
    var all = cards.querySelectorAll("article[data-node]"), index = all.length - 1;
    while (index > 0 && !all[index].classList.contains("user")) index--;
    return all[index] || null;
  }
  var grow = page.later(function () {
    if (at.end < at.total) { show(); return; }
    var isAtEnd = innerHeight + scrollY > document.body.scrollHeight - 200;
    load("to_end=1" + (lastPrompt() ? "&node=" + lastPrompt().dataset.node : "&start=" + at.start)).then(function (found) {
      var open = {}, known = {};
      cards.querySelectorAll("details[open][id]").forEach(function (one) { open[one.id] = true; });
      cards.querySelectorAll("article").forEach(function (one) { known[one.id] = true; });
      var box = document.createElement("div");
      box.innerHTML = found.text;
      var first = box.firstElementChild, old = first && document.getElementById(first.id);
      while (old) { var next = old.nextElementSibling; old.remove(); old = next; }
      box.querySelectorAll("article").forEach(function (one) { if (!known[one.id]) one.classList.add("new"); });
      while (box.firstChild) cards.appendChild(box.firstChild);
      Object.keys(open).forEach(function (id) { var one = document.getElementById(id); if (one && one.tagName === "DETAILS") one.open = true; });
      at.end = at.total = found.total;
      show();
      if (isAtEnd) scrollTo(0, document.body.scrollHeight);
    });
  }, 150);
  var redraw = page.later(loadGraph, 400), reoutline = page.later(loadOutline, 800);
  var events = new EventSource(base + "/events?from=" + main.dataset.count);
  var received = 0;
  events.addEventListener("entry", function (event) {
    var entry = JSON.parse(event.data);
    if (entry.type === "compaction") { location.reload(); return; }
    received += 1;
    live.textContent = received + (received === 1 ? " new entry" : " new entries");
    redraw();
    /* On another branch than the one that is shown, or a mark on it that nothing follows. */
    if (at.leaf && (entry.parent !== at.leaf || entry.type === "leaf" || entry.type === "label")) return;
    if (at.leaf) at.leaf = entry.id;
    grow(); reoutline();
  });
  events.addEventListener("leaf", function () { if (!at.leaf) grow(); redraw(); });
  events.addEventListener("rewritten", function () { location.reload(); });
  events.addEventListener("problem", function (event) { live.textContent = JSON.parse(event.data).message; });

  function decorate() {
    if (window.entryMenus) window.entryMenus(cards);
  }
  addEventListener("load", decorate);
  if (location.hash.length > 1) { var wanted = document.getElementById(decodeURIComponent(location.hash.slice(1))); if (wanted) { for (var up = wanted; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true; wanted.scrollIntoView(); } }
  else if (at.total && at.end === at.total && at.start > 0) scrollTo(0, document.body.scrollHeight);
})();
