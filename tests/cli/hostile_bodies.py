"""Requests made to take a server's time or memory: (name, method, path, body). Each body is a few bytes to the
64 MiB that a server takes by default, and made when it is asked for.
"""
import json

MIB = 1 << 20
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


def say(text):
    return [{"role": "user", "content": text}]


def chat(**fields):
    return {"messages": say("hi"), "max_tokens": 1, **fields}


def schema(value):
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": value}})


def tool(parameters, name="f"):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def filled(before, piece, count, after):
    return before + piece * count + after


def nested(depth):
    value = {"type": "string"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}}
    return value


def doubling(levels):
    """Each definition refers twice to the one before."""
    defs = {"d0": {"type": "string"}}
    for i in range(1, levels):
        ref = {"$ref": f"#/$defs/d{i - 1}"}
        defs[f"d{i}"] = {"type": "object", "properties": {"a": ref, "b": ref}, "required": ["a", "b"]}
    return {"$defs": defs, "$ref": f"#/$defs/d{levels - 1}"}


def texts():
    """A conversation, a text and what is counted of them, each with long texts of every kind."""
    kinds = {"letters": "a", "spaces": " ", "lines": "\n", "digits": "7", "words": "word ", "marks": "<|im_end|>",
             "emoji": "\U0001F600", "chinese": "中", "mixed": "aZ9 \n\té", "blank lines": "  \n", "zeros": "\0",
             "accents": "e\u0301", "unbroken words": "Ab", "apostrophes": "'s", "thai": "\u0e01\u0e31"}
    for name, piece in kinds.items():
        count = 16 * MIB // len(json.dumps(piece, ensure_ascii=False).encode())
        yield f"chat of {name}", CHAT, lambda p=piece, n=count: chat(messages=say(p * n))
    for name in ("letters", "spaces", "mixed", "marks"):
        piece = kinds[name]
        count = 40 * MIB // (len(json.dumps(piece)) - 2)
        yield f"text of {name}", TEXT, lambda p=piece, n=count: {"prompt": p * n, "max_tokens": 1}
        yield f"tokens of {name}", "/tokenize", lambda p=piece, n=count: {"content": p * n}
        yield f"pieces of {name}", "/tokenize", lambda p=piece, n=count: {"content": p * n, "with_pieces": True}
    yield "chat of 60 MiB", CHAT, lambda: chat(messages=say("x y" * (20 * MIB)))
    yield "echo of a long text", TEXT, lambda: {"prompt": "a b " * MIB, "echo": True, "logprobs": 5, "max_tokens": 0}
    yield "ids of a long text", TEXT, lambda: {"prompt": [5] * 1900000, "max_tokens": 1}
    yield "text of many ids", "/detokenize", lambda: {"tokens": [5] * 1900000}
    yield "ids beyond the vocabulary", "/detokenize", lambda: {"tokens": [1 << 40] * 100000}


def lists():
    yield "many messages", CHAT, lambda: chat(messages=say("x") * 400000)
    yield "many empty parts", CHAT, lambda: chat(messages=say([{"type": "text", "text": ""}] * 300000))
    yield "many systems", CHAT, lambda: chat(messages=[{"role": "system", "content": "s"}] * 300000 + say("x"))
    yield "many tool results", CHAT, lambda: chat(messages=say("x") + [
        {"role": "tool", "tool_call_id": f"c{i}", "content": "r"} for i in range(200000)])
    yield "many calls", CHAT, lambda: chat(messages=say("x") + [{"role": "assistant", "content": None, "tool_calls": [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(150000)]}])
    yield "a call of deep arguments", CHAT, lambda: chat(messages=say("x") + [{
        "role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "f", "arguments": '{"a":' + "[" * 4000000 + "]" * 4000000 + "}"}}]}])
    yield "a call of wide arguments", CHAT, lambda: chat(messages=say("x") + [{
        "role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "f", "arguments": "{" + ",".join(f'"k{i}":[{i},""]' for i in range(900000)) + "}"}}]}])
    yield "long thoughts", CHAT, lambda: chat(messages=[
        {"role": "assistant", "reasoning_content": "t " * (8 * MIB), "content": "</think>" * MIB}] + say("x"))
    yield "many items", RESPONSES, lambda: {"max_output_tokens": 16, "input": [
        {"type": "message", "role": "user", "content": "x"}] * 300000}
    yield "many outputs of calls", RESPONSES, lambda: {"max_output_tokens": 16, "input": [
        {"type": "function_call_output", "call_id": f"c{i}", "output": "x"} for i in range(200000)]}
    yield "long instructions", RESPONSES, lambda: {"max_output_tokens": 16, "instructions": "a b" * (10 * MIB),
                                                       "input": "x"}
    yield "large metadata", RESPONSES, lambda: {"max_output_tokens": 16, "input": "x", "metadata": {
        f"k{i}": "v" * 100 for i in range(200000)}}
    yield "many blocks", MESSAGES, lambda: {"max_tokens": 1, "messages": say([{"type": "text", "text": "b"}] * 300000)}
    yield "many uses of tools", MESSAGES, lambda: {"max_tokens": 1, "messages": say("x") + [{
        "role": "assistant", "content": [{"type": "tool_use", "id": f"t{i}", "name": "f", "input": {"a": [i]}}
                                         for i in range(150000)]}]}
    yield "a picture of 45 MiB", MESSAGES, lambda: {"max_tokens": 1, "messages": say([{
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * (11 * MIB)}}])}
    yield "many system texts", MESSAGES, lambda: {"max_tokens": 1, "messages": say("x"), "system": [
        {"type": "text", "text": "x-anthropic-billing-header: a\nb"}] * 200000}
    yield "counting much", "/v1/messages/count_tokens", lambda: {"messages": say("a b c " * (5 * MIB))}
    yield "rendering much", "/apply-template", lambda: {"messages": say("a<b " * (5 * MIB))}
    yield "many prompts", TEXT, lambda: {"prompt": ["a b c"] * 256, "max_tokens": 1, "n": 4}
    yield "too many prompts", TEXT, lambda: {"prompt": ["a"] * 500000, "max_tokens": 1}
    yield "many choices", CHAT, lambda: chat(n=64, tools=[tool({}, f"f{i}") for i in range(900)])
    yield "many stop texts", CHAT, lambda: chat(stop=["s" * 4096 + str(i) for i in range(5000)])
    yield "longest stop texts", CHAT, lambda: chat(stop=["s" * 4000 + str(i) for i in range(64)], max_tokens=20)
    yield "many biases", CHAT, lambda: chat(logit_bias={str(i): 1 for i in range(400000)})
    yield "most alternatives", TEXT, lambda: {"prompt": "a b c d", "echo": True, "logprobs": 1 << 30, "max_tokens": 4}
    yield "a long name of the model", CHAT, lambda: chat(model="m" * (20 * MIB))
    yield "template values", CHAT, lambda: chat(chat_template_kwargs={f"k{i}": [i] * 10 for i in range(100000)})
    yield "a long template value", CHAT, lambda: chat(chat_template_kwargs={"k": "v" * (40 * MIB)})
    yield "a profile", "/moe-hot-cache", lambda: {"layers": [{"counts": [1] * 256}] * 5000}
    yield "a slot's name", "/slots/0?action=save", lambda: {"filename": "n" * (30 * MIB)}


def schemas():
    yield "a schema of names", lambda: schema({"type": "object", "properties": {
        f"name{i}": {"type": "integer"} for i in range(3500)}})
    yield "a schema of unlike names", lambda: schema({"type": "object", "properties": {
        f"{(i * 2654435761) % (1 << 32):08x}": {"type": "integer"} for i in range(3500)}})
    yield "a schema of constants", lambda: schema({"anyOf": [{"const": f"c{i}"} for i in range(5000)]})
    yield "a schema of an enum", lambda: schema({"enum": [f"c{i}" for i in range(9000)]})
    yield "a schema that is large", lambda: schema({"enum": [f"c{i}" for i in range(900000)]})
    yield "a schema that is nested", lambda: schema(nested(25))
    yield "a schema that doubles", lambda: schema(doubling(60))
    yield "a schema of itself", lambda: schema({"$ref": "#"})
    yield "a schema of all of itself", lambda: schema({"allOf": [{"$ref": "#"}, {"$ref": "#"}]})
    yield "a schema of products", lambda: schema({"allOf": [
        {"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(12)]} for i in range(12)]})
    yield "a schema of patterns", lambda: schema({"type": "string", "pattern": "^(a|a)*" * 200 + "$"})
    yield "a schema of counted patterns", lambda: schema({"type": "string", "pattern": "^((a{0,999}){0,999}){0,999}$"})
    yield "a schema of a long text", lambda: schema({"type": "string", "minLength": 10**9, "maxLength": 2 * 10**9})
    yield "a schema of a long list", lambda: schema({"type": "array", "items": {"type": "array", "minItems": 10**6},
                                                     "minItems": 10**9})
    yield "a schema of numbers", lambda: schema({"type": "integer", "minimum": -10**300, "maximum": 10**300})
    yield "a schema of alternatives", lambda: schema({"anyOf": [
        {"type": "array", "items": {"$ref": "#"}, "maxItems": i} for i in range(199)]})
    yield "tools", lambda: chat(tools=[tool({"type": "object", "properties": {"a": {"type": "string"}}}, f"f{i}")
                                       for i in range(4096)])
    yield "too many tools", lambda: chat(tools=[tool({}, f"f{i}") for i in range(300000)])
    yield "required tools", lambda: chat(tool_choice="required", tools=[
        tool({"type": "object", "properties": {f"p{i}_{j}": {"type": "integer"} for j in range(30)}}, f"f{i}")
        for i in range(500)])
    yield "a tool of a long description", lambda: chat(tools=[{"type": "function", "function": {
        "name": "f", "description": "d " * (15 * MIB), "parameters": {}}}])
    yield "a tool that is deep", lambda: chat(tools=[tool(nested(28))])


def documents():
    """Bodies that are no JSON, or hardly."""
    yield "brackets", filled("", "[", 30 * MIB, "")
    yield "objects in objects", filled("", '{"a":', 6 * MIB, "")
    yield "empty lists", filled('{"messages":[', "[],", 12 * MIB, "[]]}")
    yield "empty objects", filled('{"messages":[', "{},", 640000, "{}]}")
    yield "just below two million values", filled('{"messages":[', "1,", 1999990, "1]}")
    yield "many keys", '{"messages":[],' + ",".join(f'"k{i}":0' for i in range(1900000)) + "}"
    yield "one key again and again", filled("{", '"a":1,', 5 * MIB, '"a":1}')
    yield "a long number", filled('{"max_tokens":', "9", 40 * MIB, "}")
    yield "a long fraction", filled('{"temperature":0.', "1", 40 * MIB, "}")
    yield "numbers with exponents", filled('{"messages":[', "1e999,", 900000, "1]}")
    yield "escapes", filled('{"messages":[{"role":"user","content":"', "\\u0041", 8 * MIB, '"}]}')
    yield "half surrogates", filled('{"messages":[{"role":"user","content":"', "\\ud800", 8 * MIB, '"}]}')
    yield "a text without an end", filled('{"messages":[{"role":"user","content":"', "a", 50 * MIB, "")
    yield "blanks", filled("", " ", 60 * MIB, "")
    yield "zero bytes", filled("", "\0", 60 * MIB, "")
    yield "keys of a mebibyte", "{" + ",".join(f'"{"k" * MIB}{i}":0' for i in range(40)) + "}"


def hostile_requests():
    """Pairs of a name and a function that gives (path, body as bytes)."""
    for name, path, make in (*texts(), *lists()):
        yield name, lambda p=path, m=make: (p, json.dumps(m(), ensure_ascii=False).encode())
    for name, make in schemas():
        yield name, lambda m=make: (CHAT, json.dumps(m()).encode())
    for name, body in documents():
        yield name, lambda b=body: (CHAT, b.encode())
