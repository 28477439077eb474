/* Actions: asks for arguments, shows the plan, carries it out after a confirmation, offers to undo it. */
(function () {
  "use strict";
  var main = document.getElementById("content"), dialog = document.getElementById("dialog");
  var title = document.getElementById("dialog-title"), body = document.getElementById("dialog-body"), confirm = document.getElementById("dialog-confirm");
  var onConfirm = null;

  confirm.addEventListener("click", function () { if (onConfirm) onConfirm(); });
  dialog.addEventListener("keydown", function (event) { if (event.key === "Enter" && event.target.tagName === "INPUT") { event.preventDefault(); confirm.click(); } });

  function paragraph(text, kind) {
    var one = document.createElement("p");
    one.textContent = text;
    if (kind) one.className = kind;
    body.appendChild(one);
  }

  function field(argument, preset) {
    var label = document.createElement("label"), input;
    label.textContent = argument.name + (argument.kind === "texts" || argument.kind === "entries" ? " (separated by spaces)" : "") + (argument.required ? "" : " (optional)");
    if (argument.kind === "choice") {
      input = document.createElement("select");
      (argument.required ? argument.choices : [""].concat(argument.choices)).forEach(function (choice) {
        var option = document.createElement("option");
        option.textContent = option.value = choice;
        input.appendChild(option);
      });
    } else {
      input = document.createElement("input");
      if (argument.kind === "flag") { input.type = "checkbox"; input.checked = argument.name === "pinned"; }
    }
    input.name = argument.name;
    input.dataset.kind = argument.kind;
    if (preset) input.value = preset;
    label.appendChild(input);
    body.appendChild(label);
  }

  function values() {
    var found = {};
    body.querySelectorAll("[data-kind]").forEach(function (input) {
      var kind = input.dataset.kind;
      if (kind === "flag") found[input.name] = input.checked;
      else if (kind === "entries" || kind === "texts") { if (input.value.trim()) found[input.name] = input.value.trim().split(/[\s,]+/); }
      else if (input.value) found[input.name] = input.value;
    });
    return found;
  }

  function open(action, presets, key) {
    title.textContent = action.title;
    body.textContent = "";
    action.arguments.forEach(function (argument) { field(argument, presets && presets[argument.name]); });
    confirm.textContent = "Plan";
    confirm.hidden = false;
    onConfirm = function () { plan("/s/" + (key || main.dataset.key) + "/plan", { action: action.name, arguments: values() }); };
    if (!dialog.open) dialog.showModal();
    if (!action.arguments.length) onConfirm();
  }

  function plan(path, request) {
    confirm.disabled = true;
    page.post(path, request).then(function (found) {
      title.textContent = "Confirm: " + found.action;
      body.textContent = "";
      paragraph(found.title, "plan-title");
      found.lines.slice(0, 60).forEach(function (line) { paragraph(line, "quiet"); });
      found.warnings.forEach(function (line) { paragraph(line, "bad"); });
      if (found.final) paragraph("This cannot be undone here: " + found.final, "bad");
      confirm.hidden = Boolean(found.nothing);
      if (!dialog.open) dialog.showModal();
      if (found.nothing) { paragraph("Nothing to do: " + found.nothing); return; }
      confirm.textContent = "Do it";
      onConfirm = function () { carryOut(found.plan); };
      confirm.focus();
    }).catch(fail).finally(function () { confirm.disabled = false; });
  }

  function carryOut(id) {
    confirm.disabled = true;
    page.post("/do", { plan: id }).then(function (found) {
      dialog.close();
      if (found.undo) sessionStorage.setItem("undo", JSON.stringify({ plan: found.undo, title: found.undoTitle }));
      else sessionStorage.removeItem("undo");
      sessionStorage.setItem("done", ["Done."].concat(found.path || [], found.notes || []).join(" "));
      location.reload();
    }).catch(fail).finally(function () { confirm.disabled = false; });
  }

  function fail(error) {
    if (!dialog.open) { title.textContent = "Not possible"; body.textContent = ""; confirm.hidden = true; dialog.showModal(); }
    paragraph(error.message, "bad");
  }

  window.pageActions = { plan: plan, open: open };
  document.querySelectorAll("[data-action]").forEach(function (button) {
    button.addEventListener("click", function () { open(JSON.parse(button.dataset.action)); });
  });
  document.querySelectorAll("[data-restore]").forEach(function (button) {
    button.addEventListener("click", function () { plan("/restore", { action: "restore", item: button.dataset.restore }); });
  });
  var chat = document.getElementById("start-chat");
  if (chat) chat.addEventListener("click", function () {
    page.post("/chat", { session: main.dataset.key }).then(function (found) { location.href = "/chat/" + found.chat; }).catch(fail);
  });

  /* Each entry has a menu with the actions that take one. */
  window.entryMenus = function (cards) {
    var actions = Array.prototype.map.call(document.querySelectorAll("#actions [data-action]:enabled"), function (button) { return JSON.parse(button.dataset.action); })
      .filter(function (action) { return action.arguments.some(function (argument) { return argument.kind === "entry" || argument.kind === "entries"; }); });
    if (!actions.length) return;
    cards.querySelectorAll("article[data-id]:not([data-menu])").forEach(function (card) {
      card.dataset.menu = "1";
      var select = document.createElement("select");
      select.className = "entry-menu";
      select.setAttribute("aria-label", "Actions for this entry");
      [{ name: "", title: "⋯" }].concat(actions, [{ name: "compare", title: "Compare with the current branch" }, { name: "context", title: "Show the context up to here" }], document.body.dataset.shared ? [] : [{ name: "explore", title: "Explore from here" }]).forEach(function (action) {
        var option = document.createElement("option");
        option.value = action.name;
        option.textContent = action.title;
        select.appendChild(option);
      });
      select.addEventListener("change", function () {
        var name = select.value, id = card.dataset.id;
        select.value = "";
        if (name === "compare") { location.href = "/s/" + main.dataset.key + "/compare?other=" + encodeURIComponent(id); return; }
        if (name === "explore") { location.href = "/s/" + main.dataset.key + "/explore?at=" + encodeURIComponent(id); return; }
        if (name === "context") { location.href = "/s/" + main.dataset.key + "/context?leaf=" + encodeURIComponent(id); return; }
        var action = actions.filter(function (one) { return one.name === name; })[0], presets = {};
        action.arguments.forEach(function (argument) { if ((argument.kind === "entry" && argument.name === "entry") || argument.kind === "entries") presets[argument.name] = id; });
        open(action, presets);
      });
      card.querySelector("header").appendChild(select);
    });
  };

  var done = sessionStorage.getItem("done"), undo = JSON.parse(sessionStorage.getItem("undo") || "null");
  sessionStorage.removeItem("done");
  sessionStorage.removeItem("undo");
  if (done) {
    if (undo) page.notify(done, "Undo", function () {
      page.post("/do", { plan: undo.plan }).then(function () { sessionStorage.setItem("done", "Undone."); location.reload(); }).catch(function (error) { page.notify(error.message); });
    });
    else page.notify(done);
  }
})();
