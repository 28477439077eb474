/* Requests and messages that all pages use. */
var page = (function () {
  "use strict";
  var timer = 0;

  function post(path, fields) {
    return fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fields) })
      .then(function (response) {
        return response.json().catch(function () { return { error: response.statusText }; }).then(function (found) {
          if (!response.ok) throw new Error(found.error || response.statusText);
          return found;
        });
      });
  }

  function notify(text, label, act) {
    var box = document.getElementById("notice");
    box.textContent = text;
    if (label) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.addEventListener("click", function () { box.hidden = true; act(); });
      box.appendChild(button);
    }
    box.hidden = false;
    clearTimeout(timer);
    timer = setTimeout(function () { box.hidden = true; }, label ? 30000 : 6000);
  }

  /* Calls a function once things have been quiet for some time. */
  function later(act, wait) {
    var waiting = 0;
    return function () { clearTimeout(waiting); waiting = setTimeout(act, wait); };
  }

  /* Loads the content of a part that names its source, when it is opened for the first time. */
  function loadWhenOpened(parts) {
    parts.addEventListener("toggle", function (event) {
      var box = event.target;
      if (!box.open || !box.dataset.source || box.dataset.loaded) return;
      box.dataset.loaded = "1";
      fetch(box.dataset.source).then(function (response) { return response.text(); }).then(function (text) { box.insertAdjacentHTML("beforeend", text); });
    }, true);
  }

  return { loadWhenOpened: loadWhenOpened, post: post, notify: notify, later: later };
})();
