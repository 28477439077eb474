/* Lanes of an exploration: shows them as they change, steers and stops them, and asks for decisions. */
(function () {
  "use strict";
  var main = document.getElementById("content"), base = "/s/" + main.dataset.key + "/explore", run = main.dataset.run;
  var board = document.getElementById("lanes"), shown = {};

  function fail(error) { page.notify(error.message); }
  function post(path, fields) { return page.post(base + "/" + run + path, fields).catch(fail); }

  var start = document.getElementById("start-lanes");
  if (start) start.addEventListener("submit", function (event) {
    event.preventDefault();
    var count = document.getElementById("count").value, models = document.getElementById("models").value.split(/[\s,]+/).filter(Boolean);
    var request = { prompts: document.getElementById("prompts").value, models: models, check: document.getElementById("check").value };
    if (count) request.count = Number(count);
    if (start.dataset.at) request.at = start.dataset.at;
    page.post(base, request).then(function (found) { location.href = base + "?run=" + encodeURIComponent(found.run); }).catch(fail);
  });
  if (!board) return;

  /* What the user typed, marked or opened stays when a lane is drawn again. */
  function keep(old, fresh) {
    old.querySelectorAll("input[id]").forEach(function (input) {
      var next = fresh.querySelector("#" + CSS.escape(input.id));
      if (next) { next.value = input.value; next.checked = input.checked; }
    });
    old.querySelectorAll("details[id][open]").forEach(function (box) {
      var next = fresh.querySelector("#" + CSS.escape(box.id));
      if (next && next.firstElementChild.textContent === box.firstElementChild.textContent) next.replaceWith(box);
    });
  }

  function show(html) {
    var box = document.createElement("div"), focused = document.activeElement && document.activeElement.id, known = {};
    box.innerHTML = html;
    Array.prototype.slice.call(box.children).forEach(function (fresh) {
      var text = fresh.outerHTML, old = document.getElementById(fresh.id);
      known[fresh.id] = true;
      if (old && shown[fresh.id] === text) return;
      shown[fresh.id] = text;
      if (old) { keep(old, fresh); old.replaceWith(fresh); } else board.appendChild(fresh);
    });
    Array.prototype.slice.call(board.children).forEach(function (old) { if (!known[old.id]) { delete shown[old.id]; old.remove(); } });
    board.querySelectorAll(".running .lane-answer").forEach(function (one) { one.scrollTop = one.scrollHeight; });
    var again = focused && document.getElementById(focused);
    if (again && again !== document.activeElement) again.focus();
    update();
  }

  function marked() { return Array.prototype.map.call(board.querySelectorAll("[data-mark]:checked"), function (box) { return box.dataset.mark; }); }
  function update() {
    var merge = document.getElementById("merge-marked"), all = document.getElementById("stop-all");
    if (!merge) return;
    merge.disabled = document.getElementById("drop-marked").disabled = marked().length === 0;
    all.hidden = board.querySelector("[data-stop]") === null;
  }
  function decide(action, fields) { fields.run = run; pageActions.plan("/s/" + main.dataset.key + "/plan", { action: action, arguments: fields }); }

  board.addEventListener("change", update);
  board.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.keep) decide("keep-lane", { lane: button.dataset.keep });
    if (button.dataset.stop) post("/stop", { lane: Number(button.dataset.stop) });
    if (button.dataset.question) post("/answer", { id: button.dataset.question, answer: button.dataset.answer });
  });
  board.addEventListener("submit", function (event) {
    var form = event.target.closest("[data-steer]"), input = form.querySelector("input"), text = input.value;
    event.preventDefault();
    if (!text.trim()) return;
    post("/steer/" + form.dataset.steer, { text: text }).then(function (found) { if (found) { input.value = ""; page.notify("Sent with the next request of the lane."); } });
  });
  page.loadWhenOpened(board);
  if (document.getElementById("decide")) {
    document.getElementById("merge-marked").addEventListener("click", function () { decide("merge-lanes", { lanes: marked() }); });
    document.getElementById("drop-marked").addEventListener("click", function () { decide("drop-lanes", { lanes: marked() }); });
    document.getElementById("stop-all").addEventListener("click", function () { post("/stop", {}); });
  }
  update();

  /* Only the newest board is drawn: on a busy machine boards arrive faster than they can be drawn, and the page would hang. */
  var newest = null;
  function draw() { var event = newest; newest = null; show(JSON.parse(event.data).html); }
  new EventSource(base + "/" + run + "/events").addEventListener("board", function (event) {
    if (newest === null) setTimeout(draw, 50);
    newest = event;
  });
})();
