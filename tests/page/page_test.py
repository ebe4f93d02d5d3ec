#!/usr/bin/env python3
"""The page in a browser, against a server that plays scripts."""

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from browser import launch, start_playwright
from fake_server import HOSTILE, Fake
from page_checks import PHONE, PageChecks


class Checks(PageChecks):
    def __init__(self, browser, page_file, scratch):
        super().__init__(browser, scratch)
        self.text = page_file.read_text()

    def start_server(self):
        return Fake(self.text)

    # --- a conversation ---

    def check_send_streams_the_answer(self):
        self.type("Hi there")
        self.answer().locator(".markdown", has_text="Hello").wait_for()
        self.wait_idle()
        assert self.answers() == ["Hello number 1. You said: Hi there"]
        assert self.said() == ["Hi there"]
        assert self.at("#entry").input_value() == ""
        body = self.fake.requests[0]
        assert body["messages"] == [{"role": "user", "content": "Hi there"}]
        assert body["stream"] and body["return_progress"] and body["stream_options"] == {"include_usage": True}
        assert "temperature" not in body and "tools" not in body
        stats = self.answer().locator(".stats").inner_text()
        for part in ("37 tokens", "7.0 tokens/s", "prompt 412, 380 known, 35.1 tokens/s"):
            assert part in stats, stats

    def check_second_turn_sends_the_first(self):
        self.ask("One")
        self.ask("Two")
        assert [each["role"] for each in self.fake.requests[1]["messages"]] == ["user", "assistant", "user"]
        assert self.fake.requests[1]["messages"][1]["content"] == "Hello number 1. You said: One"

    def check_new_line_by_shift_enter(self):
        self.at("#entry").fill("first")
        self.at("#entry").press("Shift+Enter")
        self.page.keyboard.type("second")
        self.at("#entry").press("Enter")
        self.wait_for(lambda: self.fake.requests, "the request")
        assert self.fake.requests[0]["messages"][0]["content"] == "first\nsecond"

    def check_stop(self):
        self.type("stall")
        self.answer().locator(".markdown", has_text="and then it").wait_for()
        self.page.keyboard.press("Escape")
        self.wait_idle()
        assert "Stopped" in self.answer().locator(".notice").inner_text()
        self.wait_for(lambda: self.fake.broken == 1, "the server to see the client leave")
        self.ask("Go on")
        assert self.fake.requests[1]["messages"][1]["content"] == "It begins and then it"

    def check_go_on_after_the_limit(self):
        self.ask("limit")
        self.button("Go on").click()
        self.wait_for(lambda: len(self.fake.requests) == 2, "the request")
        self.wait_idle()
        assert self.answers() == ["This one is too long and on it goes."]
        body = self.fake.requests[1]
        assert body["continue_final_message"] is True
        assert body["messages"][-1] == {"role": "assistant", "content": "This one is too long and"}
        assert not self.answer().locator(".notice").is_visible()
        assert "74 tokens" in self.answer().locator(".stats").inner_text()

    def check_edit_truncates_and_resends(self):
        self.ask("One")
        self.ask("Two")
        self.at(".message.user").first.hover()
        self.button("Edit message", self.at(".message.user").first).click()
        self.at("textarea.edit").fill("Uno")
        self.at("textarea.edit").press("Enter")
        self.answer().locator(".markdown", has_text="Hello number 3").wait_for()
        self.wait_idle()
        assert self.said() == ["Uno"] and len(self.answers()) == 1
        assert self.fake.requests[2]["messages"] == [{"role": "user", "content": "Uno"}]
        self.button("Undo").click()
        self.at(".said", has_text="Two").wait_for()
        assert self.said() == ["One", "Two"] and len(self.answers()) == 2

    def check_regenerate(self):
        self.ask("One")
        self.button("Answer again").click()
        self.answer().locator(".markdown", has_text="Hello number 2").wait_for()
        self.wait_idle()
        assert len(self.answers()) == 1 and self.fake.requests[0] == self.fake.requests[1]

    def check_reload_keeps_the_conversation(self):
        self.ask("Keep this")
        self.page.reload()
        self.answer().locator(".markdown", has_text="Hello number 1").wait_for()
        assert self.said() == ["Keep this"] and self.titles() == ["Keep this"]
        assert "7.0 tokens/s" in self.answer().locator(".stats").inner_text()

    def check_reload_while_it_answers(self):
        self.type("stall")
        self.answer().locator(".markdown", has_text="and then it").wait_for()
        self.page.wait_for_timeout(100)
        self.page.reload()
        self.at(".notice.bad", has_text="broke off").wait_for()
        assert self.said() == ["stall"]

    # --- the list ---

    def check_title_is_forty_characters(self):
        self.ask("This is a first message that has more than forty characters")
        assert self.titles() == ["This is a first message that has more th…"]

    def check_list_search_rename_delete(self):
        for text in ("Alpha", "Beta", "Gamma"):
            self.ask(text)
            self.page.keyboard.press("Control+k")
        assert self.titles() == ["Gamma", "Beta", "Alpha"]
        self.at("#search").fill("beta said")
        assert self.titles() == ["Beta"]
        self.at("#search").fill("")
        row = self.at("#conversations li", has_text="Alpha")
        row.hover()
        self.button("Rename Alpha").click()
        self.at("input.rename").fill("Omega")
        self.at("input.rename").press("Enter")
        assert self.titles() == ["Gamma", "Beta", "Omega"]
        self.at("#conversations li", has_text="Beta").hover()
        self.button("Delete Beta").click()
        self.wait_for(lambda: self.titles() == ["Gamma", "Omega"], "the deletion")
        self.page.reload()
        self.at("#conversations .open").first.wait_for()
        assert self.titles() == ["Gamma", "Omega"]
        self.at("#conversations .open", has_text="Omega").click()
        assert self.said() == ["Alpha"]

    def check_deletion_can_be_undone(self):
        self.ask("Precious")
        self.at("#conversations li").hover()
        self.button("Delete Precious").click()
        self.wait_for(lambda: self.titles() == [], "the deletion")
        self.button("Undo").click()
        self.wait_for(lambda: self.titles() == ["Precious"], "the conversation")

    def check_export_and_import(self):
        self.ask("Carry me")
        self.button("Settings").click()
        with self.page.expect_download() as download:
            self.button("Export all").click()
        file = self.scratch / "export.json"
        download.value.save_as(file)
        data = json.loads(file.read_text())
        assert data["conversations"][0]["title"] == "Carry me"
        self.button("Delete all").click()
        self.wait_for(lambda: self.titles() == [], "the deletion")
        data["conversations"][0]["messages"].append({"role": "evil", "content": 5})
        data["conversations"].append({"title": 7, "messages": "none"})
        file.write_text(json.dumps(data))
        self.at("#import-file").set_input_files(file)
        self.wait_for(lambda: sorted(self.titles()) == ["Carry me", "Untitled"], "the import")
        self.at("#conversations .open", has_text="Carry me").click()
        assert self.said() == ["Carry me"] and len(self.answers()) == 1
        file.write_text("[]")
        self.at("#import-file").set_input_files(file)
        self.at(".toast", has_text="no conversations").wait_for()

    def check_two_conversations_answer_at_once(self):
        self.type("stall")
        self.answer().locator(".markdown", has_text="and then it").wait_for()
        self.page.keyboard.press("Control+k")
        self.ask("Other")
        assert self.answers() == ["Hello number 2. You said: Other"]
        self.at("#conversations .live-dot").wait_for()
        self.at("#conversations .open", has_text="stall").click()
        self.at("#send[aria-label=Stop]").click()
        self.wait_idle()
        assert self.answers() == ["It begins and then it"]

    # --- what the model says ---

    def check_markdown(self):
        self.ask("markdown")
        place = self.answer().locator(".markdown:not(.thoughts)")
        count = lambda selector: place.locator(selector).count()
        assert place.locator("h3").inner_text() == "A heading"
        assert [place.locator(tag).first.inner_text() for tag in ("strong", "em", "del")] == ["bold", "slanted", "gone"]
        assert place.locator("p code").inner_text() == "code with <b>"
        links = place.locator("a")
        assert [links.nth(at).get_attribute("href") for at in range(links.count())] == [
            "https://example.org/a_b?c=1", "https://example.org/bare"]
        assert "noopener" in links.first.get_attribute("rel")
        assert count("ol > li") == 2 and count("ol ul > li") == 2 and count("li.task") == 2
        assert place.locator("td.end").all_inner_texts() == ["1", "22"]
        assert place.locator("blockquote strong").inner_text() == "text"
        assert place.locator("pre code").inner_text().strip() == 'def f(x):  # a comment\n    return "text" * 3'
        assert place.locator(".hl-comment").inner_text() == "# a comment"
        assert place.locator("p").last.inner_text() == "After the code."

    def check_code_copy(self):
        self.contexts[-1].grant_permissions(["clipboard-read", "clipboard-write"])
        self.ask("markdown")
        self.button("Copy code").click()
        self.at("#announcer", has_text="Copied").wait_for(state="attached")
        self.page.keyboard.press("Control+k")
        self.at("#entry").press("Control+v")
        assert self.at("#entry").input_value() == 'def f(x):  # a comment\n    return "text" * 3'

    def check_injected_markup_stays_text(self):
        self.ask("hostile")
        place = self.answer().locator(".markdown:not(.thoughts)")
        for selector in ("script", "img", "b", "i", "u", "svg", "[onerror]", "[onload]", "[onmouseover]", "[style]"):
            assert place.locator(f"{selector}:not(button *)").count() == 0, selector
        links = place.locator("a")
        assert [links.nth(at).get_attribute("href") for at in range(links.count())] == [
            "https://example.org/p.png", "https://example.org/ok", "https://example.org/"]
        assert self.page.evaluate("window.hacked") is None
        text = place.inner_text()
        for line in ("<script>window.hacked = 1</script>", "[click](javascript:window.hacked=3)", "</code></pre>"):
            assert line in text, line
        assert HOSTILE.splitlines()[1] in text

    def check_hostile_lengths_stay_quick(self):
        """Text made to be slow to parse."""
        hostile = (
            "*a " * 8000, "[" * 20000, "`" * 9999 + "a" + "`" * 9998, "> " * 5000, "_a*b" * 6000,
            "\n".join("  " * depth + "- x" for depth in range(300)), "|" * 20000, "# " + "# " * 10000,
            "~~a" * 8000, "<" * 20000, "http" * 6000, "[a](" * 6000, "**" * 12000, "- " * 8000,
            "https://" * 3000, "\\" * 20001, " " * 30000 + "x", "* * " * 5000 + "x",
            "~" * 30000 + "`", "~~~" + "x" * 30000 + "`", "# " + " " * 30000 + "\u2028x",
            "- " + " " * 30000 + "\u2028x", "a|b\n" + " " * 30000 + "x-|-", "a|b\n-" + " " * 30000 + "x",
            "|a" * 5000 + "|\n" + "|-" * 5000 + "|\n" + "|\n" * 5000, "http://" + "." * 30000 + "a",
            "http://" + ")" * 30000, "` " + "x" * 30000 + "`")
        self.fake.play_bombs = lambda send, raw, body: [send({"content": text + "\n\n"}) for text in hostile]
        started = time.monotonic()
        self.ask("bombs")
        assert time.monotonic() - started < 4, f"{time.monotonic() - started:.1f} s"

    def check_thinking_folds(self):
        self.type("think")
        thinking = self.answer().locator("details.thinking")
        thinking.locator("strong", has_text="question").wait_for()
        assert thinking.get_attribute("open") is not None
        assert thinking.locator("summary").inner_text() == "Thinking"
        self.fake.release.set()
        self.wait_idle()
        assert thinking.get_attribute("open") is None
        assert thinking.locator("summary").inner_text().startswith("Thought for")
        assert self.answer().locator(".markdown:not(.thoughts)").inner_text() == "The answer is 42."
        thinking.locator("summary").click()
        assert "weigh it" in thinking.locator(".thoughts").inner_text()
        self.ask("More")
        assert "reasoning_content" not in self.fake.requests[1]["messages"][1]

    def check_tool_call_is_shown_and_answered(self):
        self.button("Settings").click()
        tools = self.at("[data-setting=tools]")
        tools.fill('[{"name": "get_weather"')
        assert "not JSON" in self.at(".field-error").first.inner_text()
        tools.fill('[{"name": "get_weather", "parameters": {"type": "object"}}]')
        assert self.at(".field-error").first.inner_text() == ""
        self.button("Done").click()
        self.ask("tool")
        assert self.fake.requests[0]["tools"] == [
            {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
        card = self.answer().locator(".call")
        assert card.locator("strong").inner_text() == "get_weather"
        assert json.loads(card.locator("pre").inner_text()) == {"city": "Rome", "days": 3}
        assert "\n" in card.locator("pre").inner_text().strip()
        card.get_by_label("Result of get_weather").fill("sunny, 31 degrees")
        self.button("Send the result").click()
        self.answer().locator(".markdown", has_text="The tool said: sunny, 31 degrees").wait_for()
        self.wait_idle()
        assert self.fake.requests[1]["messages"][1:] == [
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "call_1", "type": "function",
                 "function": {"name": "get_weather", "arguments": '{"city":"Rome","days":3}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny, 31 degrees"}]
        self.page.reload()
        self.at(".call pre.plain", has_text="sunny").wait_for()

    def check_call_without_a_result(self):
        self.ask("tool")
        self.ask("Never mind")
        roles = [each["role"] for each in self.fake.requests[1]["messages"]]
        assert roles == ["user", "assistant", "tool", "user"], roles
        assert self.fake.requests[1]["messages"][2] == {
            "role": "tool", "tool_call_id": "call_1", "content": "(The user gave no result.)"}
        assert "no result" in self.at(".call").inner_text()

    def check_prompt_progress(self):
        self.type("progress")
        progress = self.answer().locator(".progress p")
        self.at(".progress p", has_text="Waiting for 2 requests").wait_for()
        self.fake.release.set()
        self.at(".progress p", has_text="3,100").wait_for()
        assert progress.inner_text() == "Prompt 3,100 of 8,200 · 41.0 tokens/s · about 2 min left"
        assert self.at(".track").last.get_attribute("aria-valuenow") == "38"
        self.fake.release.set()
        self.wait_idle()
        assert not progress.is_visible()

    def check_stream_cut_at_every_character(self):
        self.ask("crlf")
        assert self.answers() == ["Größe 漢字 ok"]

    def check_limit_is_told(self):
        self.ask("limit")
        assert "limit of tokens" in self.answer().locator(".notice").inner_text()

    def check_probabilities(self):
        self.button("Settings").click()
        self.at("[data-setting=probabilities]").check()
        self.button("Done").click()
        self.ask("probable")
        assert self.fake.requests[0]["logprobs"] is True
        self.button("Show the probabilities of tokens").click()
        tokens = self.answer().locator(".token")
        assert tokens.all_inner_texts() == [" Yes", " maybe", "."]
        assert '" no"' in tokens.first.get_attribute("title")

    # --- errors ---

    def check_error_and_retry(self):
        self.fake.failures_left = 1
        self.ask("flaky")
        notice = self.answer().locator(".notice.bad")
        assert "The template failed at line 3" in notice.inner_text()
        self.button("Try again", notice).click()
        self.answer().locator(".markdown", has_text="Hello number 2").wait_for()
        assert self.said() == ["flaky"] and self.at(".message.assistant").count() == 1

    def check_error_inside_the_stream(self):
        self.ask("fail")
        assert "The disk went away" in self.answer().locator(".notice.bad").inner_text()
        assert self.answers() == ["Half an answer"]

    def check_stream_that_ends_early(self):
        self.ask("cut")
        assert "broke off" in self.answer().locator(".notice.bad").inner_text()
        assert self.answers() == ["This one breaks"]

    def check_full_queue(self):
        self.ask("busy")
        assert "The queue is full The server asks to wait 7 s." in self.answer().locator(".notice.bad").inner_text()

    def check_server_gone(self):
        self.ask("One")
        self.fake.gone = True
        self.ask("Two")
        assert "does not answer" in self.answer().locator(".notice.bad").inner_text()

    def check_key_is_asked_for(self):
        self.fake.key = "secret"
        self.type("Hi")
        self.at("#key-entry").fill("secret")
        self.at("#key-entry").press("Enter")
        self.answer().locator(".markdown", has_text="Hello").wait_for()
        self.wait_idle()
        self.page.reload()
        self.ask("Again")
        assert len(self.answers()) == 2

    def check_loading_screen(self):
        self.fake.loading = True
        self.open()
        self.at("#loading-text", has_text="Loading the model").wait_for()
        assert self.at("#app").get_attribute("inert") is not None
        self.fake.loading = False
        self.at("#loading").wait_for(state="hidden")
        self.ask("Hi")

    # --- settings ---

    def check_settings_are_sent_and_kept(self):
        self.page.keyboard.press("Control+,")
        values = {"system": "Be short.", "temperature": "0.7", "top_p": "0.9", "top_k": "40", "min_p": "0.05",
                  "max_tokens": "200", "extra": '{"seed": 7}'}
        for name, value in values.items():
            self.at(f"[data-setting={name}]").fill(value)
        self.at("[data-setting=thinking]").select_option("off")
        self.page.keyboard.press("Escape")
        self.page.reload()
        self.ask("Hi")
        body = self.fake.requests[0]
        assert body["messages"][0] == {"role": "system", "content": "Be short."}
        expected = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 200, "seed": 7,
                    "chat_template_kwargs": {"enable_thinking": False}}
        assert {name: body.get(name) for name in expected} == expected
        assert self.at("#thinking").input_value() == "off"
        self.page.keyboard.press("Control+,")
        self.button("Reset to defaults").click()
        assert self.at("[data-setting=temperature]").input_value() == ""

    def check_bad_extra_parameters_are_not_sent(self):
        self.page.keyboard.press("Control+,")
        self.at("[data-setting=extra]").fill("{")
        self.page.keyboard.press("Escape")
        self.type("Hi")
        self.at(".toast", has_text="not JSON").wait_for()
        assert self.fake.requests == [] and self.at("#settings").is_visible()

    def check_dark_and_light(self):
        paper = lambda: self.at("main").evaluate("node => getComputedStyle(node).backgroundColor")
        assert paper() == "rgb(255, 255, 255)"
        self.page.emulate_media(color_scheme="dark")
        dark = paper()
        assert dark != "rgb(255, 255, 255)"
        self.at("#theme").click()
        assert self.at("#theme").get_attribute("aria-label") == "Appearance: light"
        assert paper() == "rgb(255, 255, 255)"
        self.at("#theme").click()
        self.page.emulate_media(color_scheme="light")
        assert paper() == dark
        self.page.reload()
        assert paper() == dark

    # --- attachments ---

    def check_attachments(self):
        file = self.scratch / "notes.txt"
        file.write_text("line one\n```\nfenced\n```\n")
        self.at("#files").set_input_files(file)
        self.at("#composer .attachment", has_text="notes.txt").wait_for()
        long = "word " * 1000
        self.page.evaluate("""text => {
          const data = new DataTransfer();
          data.setData("text/plain", text);
          document.getElementById("entry").dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, cancelable: true, bubbles: true}));
        }""", long)
        self.at("#composer .attachment", has_text="Pasted text").wait_for()
        binary = self.scratch / "image.bin"
        binary.write_bytes(b"\x89PNG\0\0\xff")
        self.at("#files").set_input_files(binary)
        self.at(".toast", has_text="not a text file").wait_for()
        self.ask("Sum up")
        content = self.fake.requests[0]["messages"][0]["content"]
        assert content.startswith("File notes.txt:\n````\nline one\n```\nfenced\n```\n\n````\n"), content[:80]
        assert long in content and content.endswith("\nSum up")
        self.at(".message.user .file", has_text="notes.txt").click()
        assert "fenced" in self.at("#viewer-body").inner_text()

    # --- the experts ---

    def check_map_of_experts(self):
        self.at("#map[aria-label^='Map of 12 layers of 64 experts']").wait_for()
        self.at("#map").hover(position={"x": 5, "y": 5})
        assert re.match(r"Layer \d+, expert \d+: (in memory|on disk), warmth \d+ %", self.at("#map-point").inner_text())
        self.type("stall")
        self.at("#numbers dt", has_text="Experts from memory").wait_for()
        self.at("#numbers dt", has_text="Disk").wait_for()
        picture = lambda: self.page.evaluate("document.getElementById('map').toDataURL()")
        # The first map of the answer is what it counts from, so there must be one behind it.
        for which in ("the answer's first map", "one behind it"):
            before = picture()
            self.wait_for(lambda: picture() != before, which)
        self.fake.release.set()
        self.wait_idle()
        self.answer().locator(".stats", has_text="from memory").wait_for()

    def check_experts_of_a_short_answer(self):
        self.at("#map[aria-label^='Map of 12 layers of 64 experts']").wait_for()
        self.ask("Hi")  # shorter than the time between two maps
        self.answer().locator(".stats", has_text="experts 94 % from memory").wait_for()

    def check_server_without_map(self):
        self.fake.has_map = False
        self.open()
        self.at("#map-absent").wait_for()
        assert not self.at("#map").is_visible()
        self.ask("Hi")

    # --- ways to use it ---

    def check_below_a_path(self):
        self.open(address="below/")
        self.ask("Hi")
        assert self.answers() == ["Hello number 1. You said: Hi"]

    def check_keyboard_only(self):
        keys = self.page.keyboard
        keys.type("Hello by keys")
        keys.press("Enter")
        self.wait_for(lambda: len(self.fake.requests) == 1, "the request")
        self.at("#send[aria-label=Send]").wait_for()
        keys.press("ArrowUp")
        assert self.page.evaluate("document.activeElement.className") == "edit"
        keys.press("Control+a")
        keys.type("Edited by keys")
        keys.press("Enter")
        self.at(".said", has_text="Edited by keys").wait_for()
        self.wait_idle()
        assert self.page.evaluate("document.activeElement.id") == "entry"
        keys.press("Control+k")
        assert self.said() == []
        keys.press("Alt+ArrowDown")
        self.at(".said", has_text="Edited by keys").wait_for()
        keys.press("Control+/")
        self.at("#help").wait_for()
        keys.press("Escape")
        self.at("#help").wait_for(state="hidden")
        keys.press("Control+Shift+f")
        assert self.page.evaluate("document.activeElement.id") == "search"
        keys.press("Control+,")
        self.at("#settings").wait_for()
        keys.press("Escape")
        self.check_focus_is_visible_and_named()

    def check_focus_is_visible_and_named(self):
        """Tab goes through everything once; each stop has a name and a ring."""
        self.at("#entry").focus()
        seen = []
        for _ in range(60):
            self.page.keyboard.press("Tab")
            stop = self.page.evaluate("""() => {
              const node = document.activeElement;
              if (node === document.body) return null;
              const style = getComputedStyle(node), box = getComputedStyle(node.closest(".search, .composer") || node);
              return {name: node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.[0]?.textContent || node.title,
                      ring: style.outlineStyle !== "none" || box.outlineStyle !== "none" || node.id === "entry" || node.id === "scroller"
                            || node.tagName === "SUMMARY", id: node.id, tag: node.tagName};
            }""")
            if stop is None:  # the browser's own controls
                continue
            if stop["id"] == "entry" and seen:
                break
            assert stop["name"] or stop["id"] == "scroller", stop
            assert stop["ring"], stop
            seen.append(stop["id"] or stop["tag"])
        assert len(seen) >= 8, seen

    def check_phone(self):
        self.open(PHONE, has_touch=True, is_mobile=True)
        assert not self.at("#sidebar").is_visible() and not self.at("#engine").is_visible()
        self.ask("markdown")
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], f"the page is {wide} wide"
        self.button("Conversations").tap()
        self.at("#sidebar").wait_for()
        self.button("New chat").tap()
        self.at("#sidebar").wait_for(state="hidden")
        self.button("Experts and speed").tap()
        self.at("#map").wait_for()
        self.button("Close").tap()
        self.at("#engine").wait_for(state="hidden")

    def check_scrolling_follows_until_the_reader_scrolls(self):
        self.ask("long")
        gap = lambda: self.at("#scroller").evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight")
        assert gap() < 5
        self.at("#scroller").evaluate("node => { node.scrollTop = 100; }")
        self.at("#to-end").wait_for()
        self.at("#entry").press("PageDown")
        assert self.at("#scroller").evaluate("node => node.scrollTop") > 300
        self.button("Answer again").click(force=True)
        self.at("#to-end").wait_for(state="hidden")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--page", type=Path, required=True, help="the joined page")
    parser.add_argument("--scratch", type=Path, help="where screenshots of failures stay")
    parser.add_argument("names", nargs="*", help="checks to run, without check_; all if none")
    args = parser.parse_args()
    playwright = start_playwright()
    with tempfile.TemporaryDirectory() as folder, playwright as started:
        scratch = args.scratch or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        browser = launch(started)
        try:
            return Checks(browser, args.page, scratch).run(args.names)
        finally:
            browser.close()


if __name__ == "__main__":
    sys.exit(main())
