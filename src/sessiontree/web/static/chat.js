/* A chat: shows the events of its runs, asks for approvals, sends prompts. */
(function () {
  "use strict";
  var main = document.getElementById("content"), id = main.dataset.chat;
  var start = document.getElementById("start-form");
  if (start) {
    start.addEventListener("submit", function (event) {
      event.preventDefault();
      page.post("/chat", { model: document.getElementById("model").value || null })
        .then(function (found) { location.href = "/chat/" + found.chat; }).catch(function (error) { page.notify(error.message); });
    });
    return;
  }
  var talk = document.getElementById("talk"), questions = document.getElementById("questions"), state = document.getElementById("state");
  var prompt = document.getElementById("prompt"), interrupt = document.getElementById("interrupt"), streaming = null;

  function card(kind, title, text) {
    var one = document.createElement("article"), head = document.createElement("header"), name = document.createElement("b"), content = document.createElement("div");
    one.className = kind;
    name.textContent = title;
    head.appendChild(name);
    content.className = "streaming";
    content.textContent = text;
    one.appendChild(head);
    one.appendChild(content);
    talk.appendChild(one);
    one.scrollIntoView({ block: "end" });
    return content;
  }

  function setRunning(isRunning) {
    state.textContent = isRunning ? "· working" : "";
    interrupt.disabled = !isRunning;
    main.dataset.running = isRunning ? "1" : "";
  }

  function showSession() {
    fetch("/chat/" + id + "/session").then(function (response) { return response.json(); }).then(function (found) {
      var link = document.getElementById("session-link");
      if (found.key) { link.href = "/s/" + found.key; link.hidden = false; }
    });
  }

  function answer(question, kind) {
    page.post("/chat/" + id + "/answer", { id: question, answer: kind }).catch(function (error) { page.notify(error.message); });
  }

  function ask(event) {
    var box = document.createElement("div"), name = document.createElement("p"), preview = document.createElement("pre"), buttons = document.createElement("p");
    box.className = "question";
    box.dataset.question = event.id;
    name.textContent = event.question.tool + ": " + event.question.title + " (" + event.question.reasons.join("; ") + ")";
    preview.textContent = event.question.preview;
    buttons.className = "buttons";
    [["once", "Allow once"]].concat(event.question.mayAlways ? [["always", "Always in this session"]] : [], [["no", "Deny"]]).forEach(function (choice) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = choice[1];
      button.dataset.answer = choice[0];
      button.addEventListener("click", function () { answer(event.id, choice[0]); });
      buttons.appendChild(button);
    });
    box.appendChild(name);
    if (event.question.preview) box.appendChild(preview);
    box.appendChild(buttons);
    questions.appendChild(box);
    buttons.firstChild.focus();
  }

  var shows = {
    prompt: function (event) { card("user", "You", event.text); setRunning(true); },
    steered: function (event) { card("user", "You, while it works", event.text); },
    text_delta: function (event) { streaming = streaming || card("assistant", "Answer", ""); streaming.textContent += event.text; },
    turn_start: function () { streaming = null; },
    retry: function (event) { if (streaming) streaming.textContent = ""; page.notify("Attempt failed: " + event.error); },
    tool_start: function (event) { streaming = null; card("tool", event.call.name, JSON.stringify(event.call.arguments)); },
    tool_end: function (event) { var text = (event.output.text || ""); card("tool", "Result of " + event.call.name, text.length > 2000 ? text.slice(0, 2000) + "…" : text); },
    question: ask,
    question_closed: function (event) { var box = questions.querySelector('[data-question="' + CSS.escape(event.id) + '"]'); if (box) box.remove(); },
    error: function (event) { card("tool", "Failed", event.message); },
    note: function (event) { card("note", "Note", event.text); },
    agent_end: function (event) { if (event.text && !streaming) streaming = card("assistant", "Answer", event.text); if (event.reason !== "done") card("note", "Ended", event.reason + (event.why ? ": " + event.why : "")); },
    idle: function () { setRunning(false); streaming = null; showSession(); }
  };

  new EventSource("/chat/" + id + "/events").addEventListener("chat", function (message) {
    var event = JSON.parse(message.data);
    if (shows[event.type]) shows[event.type](event);
  });
  document.getElementById("prompt-form").addEventListener("submit", function (event) {
    event.preventDefault();
    var text = prompt.value;
    if (!text.trim()) return;
    page.post("/chat/" + id + "/prompt", { text: text }).then(function () { prompt.value = ""; }).catch(function (error) { page.notify(error.message); });
  });
  prompt.addEventListener("keydown", function (event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); document.getElementById("prompt-form").requestSubmit(); }
  });
  interrupt.addEventListener("click", function () { page.post("/chat/" + id + "/interrupt", {}).catch(function (error) { page.notify(error.message); }); });
  document.getElementById("close-chat").addEventListener("click", function () { page.post("/chat/" + id + "/close", {}).then(function () { location.href = "/"; }); });
})();
