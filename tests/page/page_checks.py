"""What tests of the page share: a browser with the page open, and what a reader does with it."""

import re
import time
import traceback

DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


class PageChecks:
    """A check is a method whose name begins with `check_`; it gets an open page with an empty store."""

    def __init__(self, browser, scratch):
        self.browser = browser
        self.scratch = scratch

    def start_server(self):
        """Something with a `url`, a `loading` and a `close()`."""
        raise NotImplementedError

    def run(self, names):
        failed = []
        checks = [name for name in dir(self) if name.startswith("check_") and (not names or name[6:] in names)]
        for name in checks:
            self.fake = self.start_server()
            self.contexts, self.errors = [], []
            started = time.monotonic()
            try:
                self.open()
                getattr(self, name)()
                assert not self.errors, f"the browser's console: {self.errors}"
            except Exception:  # noqa: BLE001  every check is told of
                failed.append(name)
                print(f"FAILED {name}")
                traceback.print_exc()
                self.page.screenshot(path=str(self.scratch / f"{name}.png"))
            finally:
                for context in self.contexts:
                    context.close()
                self.fake.close()
            print(f"{name[6:]}: {time.monotonic() - started:.2f} s", flush=True)
        print(f"{len(checks) - len(failed)} of {len(checks)} checks passed")
        return 1 if failed or not checks else 0

    def open(self, size=DESKTOP, address="", **options):
        context = self.browser.new_context(viewport=size, locale="en-US", **options)
        context.set_default_timeout(60000)
        self.contexts.append(context)
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self.note_console)
        self.page.goto(self.fake.url + address)
        if not self.fake.loading:
            self.page.locator("#model-name", has_text=re.compile(".")).wait_for(state="attached")

    def note_console(self, message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def at(self, selector, **options):
        return self.page.locator(selector, **options)

    def button(self, name, within=None):
        return (within or self.page).get_by_role("button", name=name, exact=True)

    def type(self, text):
        self.at("#entry").fill(text)
        self.at("#entry").press("Enter")

    def ask(self, text):
        """Sends, and waits for the end of the answer."""
        count = self.at(".message.assistant").count()
        self.type(text)
        self.at(".message.assistant").nth(count).wait_for(state="attached")
        self.wait_idle()

    def wait_idle(self):
        self.at("#send[aria-label=Send]").wait_for()

    def answer(self):
        return self.at(".message.assistant").last

    def answers(self):
        return self.at(".message.assistant .markdown:not(.thoughts)").all_inner_texts()

    def said(self):
        return self.at(".said").all_inner_texts()

    def titles(self):
        return self.at("#conversations .open > span:first-child").all_inner_texts()

    def wait_for(self, condition, what):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}"
            self.page.wait_for_timeout(20)
