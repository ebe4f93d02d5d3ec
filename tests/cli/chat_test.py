"""moepack chat over a script: through pipes, and at a pseudo-terminal as a person uses it."""

import argparse
import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

SCRIPT = {
    "model": {"id": "script", "context": 4096, "vocabulary": 256, "parallel": 1},
    "answers": [
        {"match": "colour", "events": [{"content": "\x1b[31mred\x1b[0m\u009b1m\x07 ok"}]},
        {"match": "think", "events": [{"reasoning": "one two three"}, {"content": "thought so"}]},
        {"match": "forever", "events": [{"content": "begun "}, {"repeat": -1, "events": [
            {"content": "and ", "delay": 0.02}]}]},
        {"match": "refuse", "refuse": {"kind": "context", "message": "too long"}},
        {"match": "tool result", "events": [{"content": "the tool said so"}]},
        {"match": "does not allow", "events": [{"content": "then not"}]},
        {"match": "use the tool", "events": [
            {"call": {"id": "c1", "name": "echo"}}, {"arguments": "{\"a\":1}"},
            {"call_end": True}]},
        {"match": "slow tool", "events": [
            {"call": {"id": "c2", "name": "sleep"}}, {"arguments": "{}"}, {"call_end": True}]},
        {"match": "took too long", "events": [{"content": "the tool was slow"}]},
        {"match": "late call", "events": [
            {"content": "soon "}, {"content": "now", "delay": 1.5},
            {"call": {"id": "c3", "name": "echo"}}, {"arguments": "{\"a\":\"Zürich\"}"},
            {"call_end": True}]},
        {"match": "call to leave", "events": [
            {"call": {"id": "c4", "name": "leave"}}, {"arguments": "{}"}, {"call_end": True}]},
        {"match": "call to hush", "events": [
            {"call": {"id": "c5", "name": "hush"}}, {"arguments": "{}"}, {"call_end": True}]},
        {"match": "call and on", "events": [
            {"call": {"id": "c6", "name": "echo"}}, {"arguments": "{}"}, {"call_end": True},
            {"call": {"id": "c7", "name": "sleep"}}, {"arguments": "{\"a\":1}"},
            {"content": "begun "}, {"repeat": -1, "events": [
                {"content": "and ", "delay": 0.02}]}]},
        {"match": "call and cut", "events": [
            {"call": {"id": "c8", "name": "echo"}}, {"arguments": "{}"}, {"call_end": True},
            {"end": "length"}]},
        {"match": "late answer", "events": [{"content": "it is late", "delay": 1.5}]},
        {"match": "request", "events": [{"say_request": True}]},
        {"events": [{"content": "hello there"}]},
    ],
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
         for name in ("echo", "sleep", "leave", "hush")]


class Checks:
    def __init__(self):
        self.count, self.failures = 0, []

    def expect(self, condition, text):
        self.count += 1
        if not condition:
            self.failures.append(text)
            print("FAILED:", text)


class Terminal:
    """The program at a pseudo-terminal."""

    def __init__(self, command, environment):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environment)

    def wait_for(self, words, seconds=20):
        """What came until `words`, which stand in it; raises where they do not come."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"{words!r} did not come: {self.text!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                raise EOFError(f"{words!r} did not come: {self.text!r}")
            self.text += data.decode("utf-8", "replace")
        end = self.text.index(words) + len(words)
        before, self.text = self.text[:end], self.text[end:]
        return before

    def rest(self, seconds):
        """What comes in so many seconds."""
        deadline = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
            self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
        rest, self.text = self.text, ""
        return rest

    def send(self, text):
        os.write(self.fd, text.encode())

    def press(self, key):
        """A control key at the prompt, which is written a moment before keys come one by one."""
        self.wait_for("> ")
        deadline = time.monotonic() + 20
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            if time.monotonic() > deadline:
                raise TimeoutError("the editor does not read")
            time.sleep(0.01)
        self.send(key)

    def say(self, text):
        self.wait_for("> ")
        self.send(text + "\r")

    def saved(self, file):
        """The conversation."""
        self.say(f"/save {file}")
        self.wait_for("messages saved")
        return json.loads(file.read_text())["messages"]

    def exit_code(self, seconds=20):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            select.select([self.fd], [], [], 0.05)
            try:
                os.read(self.fd, 65536)
            except OSError:
                pass
            pid, state = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(state)
        os.kill(self.pid, signal.SIGKILL)
        raise TimeoutError("the program did not end")


def test_pipes(checks, command):
    def run(*flags, text=""):
        return subprocess.run([*command, *flags], input=text, capture_output=True, text=True,
                              timeout=60, check=False)

    done = run(text="hi\n")
    checks.expect((done.returncode, done.stdout) == (0, "hello there\n"), f"stdin: {done}")
    done = run("-p", "a colour")
    checks.expect(done.stdout == "[31mred[0m1m ok\n", f"control characters: {done.stdout!r}")
    done = run("-p", "think")
    checks.expect(done.stdout == "thought so\n", f"thoughts: {done.stdout!r}")
    done = run("-p", "what is the", text="request")
    checks.expect("what is the\\n\\nrequest" in done.stdout, f"both: {done.stdout!r}")
    done = run("-p", "refuse")
    checks.expect(done.returncode == 2 and "too long" in done.stderr, f"refused: {done}")
    done = run("-p", "use the tool")
    checks.expect(done.returncode == 2 and "calls echo" in done.stderr, f"call: {done}")
    for flags, name in ((["-p", "hi"], "stdin"), (["-p", b"\xff"], "--prompt"),
                        (["-p", "hi", "--system", b"\xff"], "--system")):
        done = subprocess.run([*command, *flags], input=b"\xff", capture_output=True, timeout=60,
                              check=False)
        checks.expect(done.returncode == 2 and name in done.stderr.decode()
                      and "UTF-8" in done.stderr.decode(), f"no UTF-8: {done}")
    done = run(text="  \n")
    checks.expect(done.returncode == 2 and "no message" in done.stderr, f"nothing: {done}")
    for flags in (["--allow-tool", "echo"], ["--allow-tool", "x=a 'b"],
                  ["--tools", "/nowhere/tools.json"]):
        done = run("-p", "hi", *flags)
        checks.expect(done.returncode == 2 and done.stderr.count("\n") == 1, f"{flags}: {done}")
    running = subprocess.Popen([*command, "-p", "forever"], stdout=subprocess.PIPE, text=True)
    running.stdout.read(6)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    checks.expect(running.returncode == 130, f"Ctrl-C: {running.returncode}")


def test_talk(checks, command, environment, folder):
    terminal = Terminal(command, environment)
    terminal.say("hi")
    terminal.wait_for("hello there")
    terminal.say("think")
    shown = terminal.wait_for("thought so")
    checks.expect("thought: 3 words" in shown and "one two" not in shown, f"folded: {shown!r}")
    terminal.say("/think show")
    terminal.say("think")
    checks.expect("one two three" in terminal.wait_for("thought so"), "thoughts are shown")
    terminal.say("first\\")
    terminal.wait_for(". ")
    terminal.send("request\r")
    checks.expect("first\\nrequest" in terminal.wait_for('"cache_hints":[]}'), "lines with a backslash")
    terminal.say('"""a')
    terminal.wait_for(". ")
    terminal.send('request b"""\r')
    checks.expect("a\\nrequest b" in terminal.wait_for('"cache_hints":[]}'), "lines in quotation marks")
    terminal.say("forever")
    terminal.wait_for("and ")
    terminal.send("\x03")
    terminal.wait_for("(stopped)")
    terminal.say("/undo")
    terminal.say("/set temperature 0.25")
    terminal.say("/set temperature hot")
    terminal.wait_for("no value of temperature")
    terminal.say("/set")
    terminal.wait_for("temperature 0.25")
    terminal.say("/system Be brief.")
    saved = folder / "chat.json"
    terminal.say(f"/save {saved}")
    terminal.wait_for("messages saved")
    chat = json.loads(saved.read_text())
    roles = [message["role"] for message in chat["messages"]]
    checks.expect(roles == ["system"] + ["user", "assistant"] * 5, f"saved: {roles}")
    checks.expect(chat["messages"][4]["reasoning"] == "one two three", "thoughts are saved")
    terminal.say("/clear")
    terminal.say(f"/load {saved}")
    terminal.wait_for("11 messages loaded")
    (folder / "bad.json").write_text('{"format": "moepack-chat", "version": 1, "messages": [1]}')
    terminal.say(f"/load {folder / 'bad.json'}")
    terminal.wait_for("message 0 is not one")
    (folder / "note.txt").write_text("text of the file")
    terminal.say(f"/file {folder / 'note.txt'}")
    terminal.say("request")
    checks.expect("text of the file" in terminal.wait_for('"cache_hints":[]}'), "a file goes before the message")
    terminal.say("/regen")
    checks.expect("text of the file" in terminal.wait_for('"cache_hints":[]}'), "another answer")
    terminal.say("/edit hi again")
    terminal.wait_for("hello there")
    terminal.say("/tokens")
    terminal.wait_for("of 4096 tokens")
    terminal.say("/stats")
    terminal.wait_for("last answer")
    terminal.say("/nothing")
    terminal.wait_for("no command /nothing")
    terminal.say("refuse")
    terminal.wait_for("too long")
    terminal.say("/bye")
    checks.expect(terminal.exit_code() == 0, "/bye")


def test_paste_and_history(checks, command, environment, state):
    terminal = Terminal(command, environment)
    terminal.wait_for("\x1b[?2004h")
    terminal.wait_for("> ")
    terminal.send("\x1b[200~request öne\rtwo\x1b[201~")
    time.sleep(0.3)
    terminal.send("\r")
    checks.expect("request öne\\ntwo" in terminal.wait_for('"cache_hints":[]}'), "pasted lines are one message")
    terminal.press("\x03")
    terminal.wait_for("Ctrl-C again")
    terminal.press("\x03")
    checks.expect(terminal.exit_code() == 0, "Ctrl-C twice")
    history = state / "moepack" / "chat_history"
    mode = stat.S_IMODE(history.stat().st_mode)
    checks.expect(mode == 0o600, f"the history's mode is {mode:o}")
    terminal = Terminal(command, environment)
    terminal.press("\x1b[A\r")
    checks.expect("request öne\\ntwo" in terminal.wait_for('"cache_hints":[]}'), "lines of the last session")
    terminal.say("hi")
    terminal.wait_for("hello there")
    terminal.press("\x1b[A\r")
    terminal.wait_for("hello there")
    terminal.press("\x04")
    checks.expect(terminal.exit_code() == 0, "Ctrl-D")


def test_tools(checks, command, environment, folder):
    tools = folder / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    answer = folder / "answer.sh"
    answer.write_text("#!/bin/sh\necho tool result \"$1\"\ncat > " + str(folder / "stdin") + "\n")
    answer.chmod(0o755)
    terminal = Terminal([*command, "--tools", str(tools), "--allow-tool", f"echo={answer} 'a  b'",
                         "--allow-tool", "sleep=sleep 60", "--tool-seconds", "0.5"], environment)
    terminal.say("use the tool")
    terminal.wait_for("[y/n")
    terminal.send("n\r")
    terminal.wait_for("then not")
    terminal.say("use the tool")
    terminal.wait_for("[y/n")
    terminal.send("y\r")
    terminal.wait_for("the tool said so")
    checks.expect((folder / "stdin").read_text() == '{"a":1}', "arguments on stdin")
    terminal.say("use the tool")
    terminal.wait_for("[y/n")
    terminal.send("a\r")
    terminal.wait_for("the tool said so")
    terminal.say("use the tool")
    shown = terminal.wait_for("the tool said so")
    checks.expect("[y/n" not in shown, "always in this session")
    terminal.say("slow tool")
    terminal.wait_for("[y/n")
    terminal.send("y\r")
    terminal.wait_for("the tool was slow")
    saved = folder / "tools_chat.json"
    terminal.say(f"/save {saved}")
    terminal.wait_for("messages saved")
    results = [m["content"] for m in json.loads(saved.read_text())["messages"]
               if m["role"] == "tool"]
    checks.expect(results[1] == "tool result a  b\n", f"results: {results}")
    terminal.say("/bye")
    terminal.exit_code()


def paste(terminal, text):
    terminal.wait_for("> ")
    terminal.send(f"\x1b[200~{text}\x1b[201~")


def last_words(text):
    return text.splitlines()[-1]


def edit(terminal, text):
    """/edit of the message `text`, which then stands in the editor."""
    terminal.say("/edit")
    return terminal.wait_for("> ") + terminal.wait_for(last_words(text)) + terminal.rest(0.3)


def test_edit(checks, command, environment, folder):
    terminal = Terminal(command, environment)
    file = folder / "edit.json"
    text = "first äöü €\r/help\r/undo\rrequest 日本 end"
    message = text.replace("\r", "\n")
    paste(terminal, text)
    terminal.wait_for(last_words(text))
    terminal.send("\r")
    terminal.wait_for('"cache_hints":[]}')
    before = terminal.saved(file)
    checks.expect(before[0]["content"] == message, f"pasted: {before}")
    shown = edit(terminal, text)
    checks.expect("forget the" not in shown and "cache_hints" not in shown, f"sent: {shown!r}")
    terminal.send("\x03")
    terminal.wait_for("stays as it was")
    checks.expect(terminal.saved(file) == before, "/edit and Ctrl-C")
    edit(terminal, text)
    terminal.send("\x15\r")
    terminal.wait_for("stays as it was")
    checks.expect(terminal.saved(file) == before, "/edit and an empty line")
    edit(terminal, text)
    terminal.send("\x15/set\r")
    terminal.wait_for("temperature")
    checks.expect(terminal.saved(file) == before, "/edit and another command")
    edit(terminal, text)
    terminal.send("!\r")
    terminal.wait_for('"cache_hints":[]}')
    after = terminal.saved(file)
    checks.expect([m["content"] for m in after][::2] == [message + "!"], f"edited: {after}")
    odd = folder / "odd.json"
    for words in ("/undo", "request\\", '"""request'):
        odd.write_text(json.dumps({"format": "moepack-chat", "version": 1,
                                   "messages": [{"role": "user", "content": words}]}))
        terminal.say(f"/load {odd}")
        terminal.wait_for("1 messages loaded")
        edit(terminal, words)
        terminal.send("\r")
        after = terminal.saved(file)
        checks.expect(len(after) == 2 and after[0]["content"] == words, f"as it was: {after}")
    terminal.say("/bye")
    terminal.exit_code()


def test_attached(checks, command, environment, folder):
    terminal = Terminal(command, environment)
    file = folder / "attached.json"
    (folder / "attached.txt").write_text("text of the file")
    terminal.say("one")
    terminal.wait_for("hello there")
    terminal.say(f"/file {folder / 'attached.txt'}")
    for words, message in (("/regen", "one"), ("/edit two", "two")):
        terminal.say(words)
        terminal.wait_for("hello there")
        contents = [m["content"] for m in terminal.saved(file)]
        checks.expect(contents == [message, "hello there"], f"an older message: {contents}")
    terminal.say("refuse")
    terminal.wait_for("too long")
    terminal.say("three")
    terminal.wait_for("hello there")
    contents = [m["content"] for m in terminal.saved(file)]
    checks.expect("text of the file" in contents[2] and contents[2].endswith("three"),
                  f"after a refusal: {contents}")
    terminal.say("/clear")
    terminal.say("late answer")
    terminal.wait_for("it is late")
    before = terminal.saved(file)
    terminal.say("/regen")
    time.sleep(0.5)
    terminal.send("\x03")
    terminal.wait_for("stays")
    checks.expect(terminal.saved(file) == before, "/regen and Ctrl-C")
    terminal.say("/bye")
    terminal.exit_code()


def is_open(shown):
    """Whether the question has no answer yet."""
    return "(not run)" not in shown and "bytes of result" not in shown


def test_consent(checks, command, environment, folder):
    """Nobody but a person who sees the question lets a command run."""
    marker = folder / "has_run"
    tools = folder / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    terminal = Terminal([*command, "--tools", str(tools), "--allow-tool",
                         f"echo=touch {marker}"], environment)
    terminal.say("late call")
    terminal.wait_for("soon")
    terminal.send("a\ry\ra")
    shown = terminal.wait_for("[y/n") + terminal.rest(0.5)
    checks.expect("Zürich" in shown and is_open(shown), f"typed ahead: {shown!r}")
    terminal.send("n\r")
    terminal.wait_for("then not")
    (folder / "hostile.txt").write_text("late call\na\nend\n")
    terminal.say(f"/file {folder / 'hostile.txt'}")
    terminal.say("go on")
    terminal.wait_for("[y/n")
    terminal.send("n\r")
    terminal.wait_for("then not")
    edit(terminal, "go on")
    terminal.send("\r")
    shown = terminal.wait_for("[y/n") + terminal.rest(0.5)
    checks.expect(is_open(shown), f"lines of a file: {shown!r}")
    terminal.send("n\r")
    terminal.wait_for("then not")
    checks.expect(not marker.exists(), "a command has run")
    checks.expect("always echo in" in shown, f"the question names the tool last: {shown!r}")
    lines = [line.removesuffix("\\012") for line in
             (folder / "state" / "moepack" / "chat_history").read_text().splitlines()]
    checks.expect("n" not in lines and any(line.startswith("late") for line in lines),
                  f"the history has an answer: {lines}")
    terminal.say("/bye")
    terminal.exit_code()


def test_tool_ends(checks, command, environment, folder):
    tools = folder / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    for name, text in (("leave", "sleep 30 2>&- & echo tool result"),
                       ("hush", "echo tool result; exec >&-; sleep 30")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    terminal = Terminal([*command, "--tools", str(tools), "--allow-tool",
                         f"leave={folder / 'leave'}", "--allow-tool", f"hush={folder / 'hush'}"],
                        environment)
    for words in ("call to leave", "call to hush"):
        terminal.say(words)
        terminal.wait_for("[y/n")
        terminal.send("y\r")
        if words == "call to hush":
            time.sleep(1)
            terminal.send("\x03")
        terminal.wait_for("the tool said so", 10)
    results = [m["content"] for m in terminal.saved(folder / "ends.json") if m["role"] == "tool"]
    checks.expect("goes on" in results[0], f"a process is left: {results}")
    checks.expect("stopped by Ctrl-C" in results[1], f"no output: {results}")
    terminal.say("/bye")
    terminal.exit_code()


def test_stopped_calls(checks, command, environment, folder):
    """A call in an answer that was stopped is answered in the history, and stays so."""
    tools = folder / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    marker = folder / "stopped_has_run"
    terminal = Terminal([*command, "--tools", str(tools), "--allow-tool", f"echo=touch {marker}"],
                        environment)
    terminal.say("call and on")
    terminal.wait_for("begun ")
    terminal.send("\x03")
    terminal.wait_for("(stopped)")
    terminal.say("call and cut")
    terminal.wait_for("max_tokens")
    terminal.say("hi")
    terminal.wait_for("hello there")
    saved = terminal.saved(folder / "stopped.json")
    told = [(m["tool_call_id"], m["name"], m["content"]) for m in saved if m["role"] == "tool"]
    checks.expect(told == [("c6", "echo", "error: not run: the user stopped the answer"),
                           ("c8", "echo", "error: not run: the answer was cut off behind the call")],
                  f"stopped behind a call: {told}")
    roles = [m["role"] for m in saved]
    checks.expect(roles == ["user", "assistant", "tool"] * 2 + ["user", "assistant"], f"{roles}")
    checks.expect(not marker.exists(), "a call of a stopped answer was run")
    # What an older version saved has calls without results.
    old = folder / "old.json"
    old.write_text(json.dumps({"format": "moepack-chat", "version": 1,
                               "messages": [m for m in saved if m["role"] != "tool"]}))
    terminal.say(f"/load {old}")
    terminal.wait_for("2 calls of tools without a result")
    loaded = terminal.saved(folder / "stopped_again.json")
    checks.expect([m["role"] for m in loaded] == roles, f"loaded: {loaded}")
    terminal.say("/bye")
    terminal.exit_code()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="chat_scripted")
    parser.add_argument("--no-editor", action="store_true", help="built without libedit")
    arguments = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.json").write_text(json.dumps(SCRIPT))
        command = [arguments.program, "--script", str(folder / "script.json")]
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm"}
        test_pipes(checks, command)
        if not arguments.no_editor:
            test_talk(checks, command, environment, folder)
            test_paste_and_history(checks, command, environment, folder / "state")
            test_tools(checks, command, environment, folder)
            test_edit(checks, command, environment, folder)
            test_attached(checks, command, environment, folder)
            test_consent(checks, command, environment, folder)
            test_tool_ends(checks, command, environment, folder)
            test_stopped_calls(checks, command, environment, folder)
    print(f"chat: {checks.count} checks, {len(checks.failures)} failures")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
