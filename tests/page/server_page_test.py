#!/usr/bin/env python3
"""The page as the server sends it, in a browser, with the whole server behind it over a script."""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from browser import launch, start_playwright
from fake_server import HOSTILE, MARKDOWN, words
from page_checks import PHONE, PageChecks


def said(text, member="content", delay=0.002):
    return [{member: piece, "delay": delay} for piece in words(text)]


SCRIPT = {
    "model": {"id": "scripted-moe", "context": 32768},
    "answers": [
        {"match": "busy", "refuse": {"kind": "busy", "message": "the queue is full", "retry": 7}},
        {"match": "stall", "events": [*said("It begins and then it"),
                                      {"repeat": -1, "events": [{"delay": 0.05}]}]},
        {"match": "think", "events": [*said("First I **weigh** it.", "reasoning"), *said("The answer is 42.")]},
        {"match": "progress", "events": [
            {"queued": 2}, {"delay": 1.5}, {"started": {"prompt": 8200, "cached": 200}},
            {"progress": {"total": 8200, "cached": 200, "done": 3300, "seconds": 75.6}}, {"delay": 1.5},
            {"progress": {"total": 8200, "cached": 200, "done": 8200, "seconds": 195}}, *said("Read it all.")]},
        {"match": "tool", "events": [
            {"call": {"id": "call_1", "name": "get_weather"}}, {"arguments": '{"city":'}, {"arguments": '"Rome"}'},
            {"call_end": True}, {"call": {"id": "call_2", "name": "get_time"}}, {"call_end": True}]},
        {"match": "sunny", "events": said("It is sunny in Rome.")},
        {"match": "noon", "events": said("It is sunny and noon in Rome.")},
        {"match": "fail", "events": [*said("Half an answer"), {"end": "error", "message": "the disk went away"}]},
        {"match": "limit", "events": [*said("Too long and"), {"end": "length"}]},
        {"match": "Too long and", "events": said(" on it goes.")},
        {"match": "hostile", "events": [{"content": HOSTILE[at:at + 9]} for at in range(0, len(HOSTILE), 9)]},
        {"match": "markdown", "events": [{"content": MARKDOWN[at:at + 7]} for at in range(0, len(MARKDOWN), 7)]},
        {"events": [{"started": {"prompt": 412, "cached": 380}}, *said("Hello to you.")]},
    ],
}


class ScriptedServer:
    def __init__(self, program, scratch, *flags, model=None):
        script = scratch / "script.json"
        script.write_text(json.dumps({**SCRIPT, "model": {**SCRIPT["model"], **(model or {})}}))
        self.loading = False
        self.process = subprocess.Popen([program, "--script", str(script), *flags], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.url = f"http://{self.process.stdout.readline().split()[-1]}/"

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0, "the server ended badly"

    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()


class Checks(PageChecks):
    def __init__(self, browser, program, scratch):
        super().__init__(browser, scratch)
        self.program = program

    def start_server(self, *flags):
        return ScriptedServer(self.program, self.scratch, *flags)

    def restart(self, *flags):
        self.fake.close()
        self.fake = self.start_server(*flags)
        self.open()

    def check_page_and_its_headers(self):
        status, headers, body = self.fake.get("")
        assert status == 200 and body.startswith(b"<!doctype html>")
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "unsafe" not in headers["Content-Security-Policy"]
        status, again, body = self.fake.get("", **{"If-None-Match": headers["ETag"]})
        assert status == 304 and body == b"" and again["ETag"] == headers["ETag"]

    def check_model_without_template(self):
        self.fake.close()
        self.fake = ScriptedServer(self.program, self.scratch, model={"chat_template": ""})
        self.open()
        notice = self.page.locator("#no-template")
        notice.wait_for()
        assert "/v1/completions" in notice.inner_text(), notice.inner_text()
        assert self.page.locator("#entry").is_disabled() and self.page.locator("#send").is_disabled()
        self.page.screenshot(path=str(self.scratch / "no-template.png"))
        self.restart()
        assert not self.at("#no-template").is_visible() and self.page.locator("#entry").is_enabled()

    def check_answer_and_statistics(self):
        self.ask("Hi there")
        assert self.answers() == ["Hello to you."]
        stats = self.answer().locator(".stats").inner_text()
        for part in ("3 tokens", "1.5 tokens/s", "prompt 412, 380 known, 64.0 tokens/s"):
            assert part in stats, stats
        self.page.reload()
        self.answer().locator(".markdown", has_text="Hello to you.").wait_for()

    def check_stop_cancels(self):
        self.type("stall")
        self.answer().locator(".markdown", has_text="and then it").wait_for()
        self.page.keyboard.press("Escape")
        self.wait_idle()
        metric = "moepack:requests_processing"

        def is_running():
            lines = self.fake.get("metrics")[2].decode().splitlines()
            return [line for line in lines if line.startswith(metric + " ")] != [f"{metric} 0"]
        self.wait_for(lambda: not is_running(), "the service to be told")

    def check_thinking(self):
        self.ask("think")
        assert self.answer().locator("summary").inner_text().startswith("Thought")
        self.answer().locator("summary").click()
        assert self.answer().locator(".thoughts strong").inner_text() == "weigh"
        assert self.answer().locator(".markdown:not(.thoughts)").inner_text() == "The answer is 42."

    def check_progress(self):
        self.type("progress")
        self.at(".progress p", has_text="Waiting for 2 requests").wait_for()
        self.at(".progress p", has_text="Prompt 3,300 of 8,200, 200 known · 41.0 tokens/s · about 2 min left").wait_for()
        self.wait_idle()

    def check_tools(self):
        self.page.keyboard.press("Control+,")
        self.at("[data-setting=tools]").fill('[{"name": "get_weather"}, {"name": "get_time"}]')
        self.page.keyboard.press("Escape")
        self.ask("tool")
        cards = self.answer().locator(".call")
        assert cards.locator("strong").all_inner_texts() == ["get_weather", "get_time"]
        assert json.loads(cards.nth(0).locator("pre").inner_text()) == {"city": "Rome"}
        assert json.loads(cards.nth(1).locator("pre").inner_text()) == {}
        self.at("textarea.result").nth(0).fill("sunny")
        self.at("textarea.result").nth(0).press("Enter")
        self.at("textarea.result").nth(1).fill("noon")
        self.at("textarea.result").nth(1).press("Enter")
        self.answer().locator(".markdown", has_text="It is sunny and noon in Rome.").wait_for()

    def check_errors(self):
        self.ask("fail")
        assert "the disk went away" in self.answer().locator(".notice.bad").inner_text()
        self.ask("busy")
        notice = self.answer().locator(".notice.bad").inner_text()
        assert "the queue is full" in notice and "wait 7 s" in notice, notice
        self.page.keyboard.press("Control+,")
        self.at("[data-setting=extra]").fill('{"top_p": "high"}')
        self.page.keyboard.press("Escape")
        self.ask("Hi")
        assert "top_p" in self.answer().locator(".notice.bad").inner_text()

    def check_go_on(self):
        self.ask("limit")
        self.button("Go on").click()
        self.answer().locator(".markdown", has_text="Too long and on it goes.").wait_for()

    def check_hostile_text(self):
        self.ask("hostile")
        assert self.page.evaluate("window.hacked") is None
        assert self.answer().locator(".markdown script, .markdown img, .markdown b").count() == 0

    def check_key(self):
        self.restart("--api-key", "secret")
        self.type("Hi there")
        self.at("#key-entry").fill("secret")
        self.at("#key-entry").press("Enter")
        self.answer().locator(".markdown", has_text="Hello to you.").wait_for()
        self.at("#map").wait_for()

    def check_page_comes_while_the_model_loads(self):
        loading = self.start_server("--loading-seconds", "3")
        try:
            assert loading.get("health")[0] == 503 and loading.get("")[0] == 200
        finally:
            loading.close()

    def check_map(self):
        self.at("#map[aria-label^='Map of 4 layers of 16 experts, 34 %']").wait_for()
        self.at("#map").hover(position={"x": 2, "y": 2})
        assert self.at("#map-point").inner_text() == "Layer 0, expert 0: in memory, warmth 0 %"

    def check_phone(self):
        self.open(PHONE, has_touch=True, is_mobile=True)
        self.ask("markdown")
        assert self.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--server", type=Path, required=True, help="the program scripted_server")
    parser.add_argument("--scratch", type=Path, help="where screenshots of failures stay")
    parser.add_argument("names", nargs="*", help="checks to run, without check_; all if none")
    args = parser.parse_args()
    playwright = start_playwright()
    with tempfile.TemporaryDirectory() as folder, playwright as started:
        scratch = args.scratch or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        browser = launch(started)
        try:
            return Checks(browser, args.server, scratch).run(args.names)
        finally:
            browser.close()


if __name__ == "__main__":
    sys.exit(main())
