"""Conversations that every family's template must render as jinja2 does, and what goes with them."""

import itertools
import json


def tool(name, properties, required=(), description="Does it. \"Quoted\" é <b>"):
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    return {"type": "function",
            "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool("get_weather", {
    "city": {"type": "string", "description": "The city,\nin any language"},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
    "days": {"type": "integer", "minimum": 1}}, ["city"])
SEARCH = tool("search", {
    "query": {"type": "string"},
    "filters": {"type": "array", "items": {"type": "object", "properties": {
        "field": {"type": "string"}, "values": {"type": "array", "items": {"type": "number"}}}}},
    "deep": {"type": ["boolean", "null"], "description": ""},
    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}, ["query", "deep"])
BARE = {"type": "function", "function": {"name": "now", "description": "", "parameters": {
    "type": "object", "properties": {}}}}
SILENT = {"type": "function", "function": {"name": "stop_all"}}
ARGUMENTS = {"city": "Zürich \"x\"\n", "days": 3, "ratio": 1.5, "tiny": 1e-07, "big": 2**53 + 1,
             "yes": True, "none": None, "list": [1, {"a": [False, "é"]}], "empty": {}, "text": ""}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return dict({"role": "assistant", "content": content}, **more)


def system(content):
    return {"role": "system", "content": content}


def call(name="get_weather", arguments=None, number=1, text=False):
    arguments = ARGUMENTS if arguments is None else arguments
    if text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def result(content, number=1, **more):
    return dict({"role": "tool", "content": content, "tool_call_id": f"call{number:05d}"}, **more)


ASK = user("What is the weather?")
TWO = [call(), call("search", {"query": "a", "deep": False}, 2)]
TEXT_TWO = [call(text=True), call("search", {"query": "a", "deep": None}, 2, text=True)]
FUNCTIONS_ONLY = [{"type": "function", "function": {"name": "now", "arguments": {}}}]
THOUGHT = "I should\n\nlook. "

CONVERSATIONS = {
    "one user": [user("Hello")],
    "nobody": [],
    "system alone": [system("Be brief.")],
    "system": [system("Be brief."), user("Hello")],
    "system in blanks": [system("  \n Be\n brief. \n"), user("\n Hello \n\n")],
    "empty system": [system(""), user("Hello")],
    "developer": [{"role": "developer", "content": "Be kind."}, user("Hello")],
    "two systems": [system("One."), system("Two."), user("Hello")],
    "late system": [user("Hello"), assistant("Hi"), system("Now be rude."), user("Well?")],
    "system at the end": [user("Hello"), system("Answer in French.")],
    "turns": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "many turns": [system("s")] + [turn for i in range(9) for turn in
                                   (user(f"question {i}"), assistant(f" answer {i}\n"))] + [user("last")],
    "users in a row": [user("a"), user("b"), user("c")],
    "assistants in a row": [user("a"), assistant("b"), assistant("c"), user("d")],
    "assistant first": [assistant("Welcome"), user("Hello")],
    "assistant last": [user("Count"), assistant("1, 2,")],
    "thoughts in the text": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c")],
    "thoughts unfinished": [user("a"), assistant("hm</think>b"), user("c"), assistant("<think>x")],
    "reasoning content": [user("a"), assistant("b", reasoning_content=THOUGHT), user("c")],
    "reasoning": [user("a"), assistant("b", reasoning=THOUGHT, thinking=THOUGHT), user("c")],
    "reasoning of the last turn": [user("a"), assistant("b", reasoning_content=THOUGHT)],
    "empty reasoning": [user("a"), assistant("b", reasoning_content=""), user("c")],
    "empty content": [user(""), assistant(""), user("")],
    "no content": [user("a"), assistant(None), user("c")],
    "content absent": [user("a"), {"role": "assistant"}, user("c")],
    "blanks": [user(" \t\n"), assistant("\n\n"), user("　")],
    "unicode": [system("Ünï €"), user("naïve 😀👩‍👩‍👧 \u2028 العربية 日本語"), assistant("ﬁ ß ı\u0301"), user("\x7f\x01\\")],
    "markers quoted": [user("<|im_end|>\n<|im_start|>system\n[INST] <s> </s> <|eot_id|> <think>"),
                       assistant("{{ x }} {% if %} </tool_call>"), user("<｜User｜>")],
    "quotes": [user("it's \"so\" & <b>"), assistant("`x` \\n 'y'"), user("%s {} {0}")],
    "parts": [user([{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}])],
    "parts everywhere": [system([{"type": "text", "text": "Sys"}]),
                         user([{"type": "text", "text": "a"}]),
                         assistant([{"type": "text", "text": "b"}]), user([{"type": "text", "text": "c"}])],
    "an image": [user([{"type": "image"}, {"type": "text", "text": "What is this?"}])],
    "an image's address": [user([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "video"},
                                 {"type": "audio"}, {"type": "other"}])],
    "a call": [ASK, assistant("", tool_calls=[call()])],
    "a call answered": [ASK, assistant("", tool_calls=[call()]), result("22 °C")],
    "a call with text": [ASK, assistant("Let me see.", tool_calls=[call()]), result("22 °C"),
                         assistant("It is 22 °C."), user("Thanks")],
    "arguments as text": [ASK, assistant(None, tool_calls=[call(text=True)]), result("22")],
    "calls at once": [ASK, assistant("", tool_calls=TWO), result("22"), result("[1, 2]", 2)],
    "calls at once, as text": [ASK, assistant(None, tool_calls=TEXT_TWO), result("22"), result("x", 2),
                               assistant("Done."), user("Again")],
    "calls in turn": [system("s"), ASK, assistant("", tool_calls=[call()]), result("22"),
                      assistant("", tool_calls=[call("search", {"query": "q", "deep": True}, 2)]),
                      result("none", 2), assistant("Nothing."), user("Ok")],
    "calls with thoughts": [ASK, assistant("", reasoning_content=THOUGHT, tool_calls=TWO), result("22"),
                            result("[]", 2), assistant("Fine.", reasoning_content="so"), user("?")],
    "calls after thoughts": [ASK, assistant("<think>\nwell\n</think>\n\n", tool_calls=[call()]), result("22")],
    "a call without arguments": [ASK, assistant("", tool_calls=FUNCTIONS_ONLY),
                                 {"role": "tool", "content": "noon", "name": "now"}],
    "empty arguments": [ASK, assistant("", tool_calls=[call("now", {})]), result("", name="now")],
    "no calls": [ASK, assistant("No.", tool_calls=[]), user("Why?")],
    "null calls": [ASK, assistant("No.", tool_calls=None), user("Why?")],
    "results as parts": [ASK, assistant("", tool_calls=[call()]),
                         result([{"type": "text", "text": "22"}, {"type": "text", "text": " °C"}])],
    "results as objects": [ASK, assistant("", tool_calls=[call()]), result({"t": 22.0, "u": ["°C", None]})],
    "a result of nothing": [result("22"), user("What was that?")],
    "an unknown role": [user("a"), {"role": "critic", "content": "b"}, user("c")],
    "ipython": [ASK, assistant("", tool_calls=[call()]), {"role": "ipython", "content": "22"}],
    "late system after calls": [ASK, assistant("", tool_calls=[call()]), result("22"),
                                system("<system-reminder>be brief</system-reminder>"), user("So?")],
    "documents": [system("Use them."), user("What do they say?")],
}

TOOLS = {"no tools": None, "a tool": [WEATHER], "tools": [WEATHER, SEARCH, BARE, SILENT]}
KEYWORDS = [
    {},
    {"enable_thinking": False, "thinking": False, "reasoning_effort": "low", "keep_past_thinking": True},
    {"enable_thinking": True, "thinking": True, "clear_thinking": False, "preserve_thinking": True,
     "reasoning_effort": "high", "date_string": "1 Jan 2025", "model_identity": "You are it.",
     "documents": [{"title": "T", "text": "Words.", "doc_id": 1}], "available_tools": None,
     "builtin_tools": ["browser", "python"], "custom_tools": None, "xml_tools": None},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def variables():
    """Yields (what it is called, the variables of one rendering)."""
    for (name, messages), (with_tools, tools), prompt, keywords in itertools.product(
            CONVERSATIONS.items(), TOOLS.items(), (True, False), KEYWORDS):
        yield f"{name}, {with_tools}", dict(
            TOKENS, messages=messages, tools=tools, add_generation_prompt=prompt, **keywords)
