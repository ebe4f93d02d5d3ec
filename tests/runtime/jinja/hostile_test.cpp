// Templates made to take time, memory or stack. Each ends within the limits, on a thread whose
// stack is far smaller than those that render templates in programs (the system's usual 8 MiB).
#include <malloc.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/jinja/template.h"

namespace moepack::jinja::hostile_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
// Sanitizers' frames are several times as large.
constexpr std::size_t kStackBytes = kSanitized ? 4 << 20 : 512 << 10;
constexpr double kSeconds = 1.0;  // of the processor
constexpr std::size_t kMemoryBytes = 200 << 20;

// The limits of every rendering, or what takes a tenth of the time: with MOEPACK_FULL_DRILL in the
// environment the first, and a line about each template.
bool full() { return std::getenv("MOEPACK_FULL_DRILL") != nullptr; }
Limits drill_limits() {
  Limits limits;
  if (!full()) limits.steps /= 10;
  return limits;
}

void on_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread{};
  const auto run = [](void* given) -> void* {
    (*static_cast<const std::function<void()>*>(given))();
    return nullptr;
  };
  std::function<void()> copy = work;
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &copy), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// The line of /proc/self/status that begins with `name`, in bytes.
std::size_t memory_line(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoul(line.substr(name.size())) * 1024;
  }
  return 0;
}

// The most memory that was in use from here to the next call of used(), beyond what is in use here.
class PeakMemory {
 public:
  PeakMemory() {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
    before_ = memory_line("VmRSS:");
  }
  std::size_t used() const {
    const std::size_t peak = memory_line("VmHWM:");
    return peak > before_ ? peak - before_ : 0;
  }

 private:
  std::size_t before_ = 0;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// `ends_well`: the template is only odd, and is rendered.
void drill(const std::string& name, const std::string& source, bool ends_well) {
  SCOPED_TRACE(name);
  Status status;
  double seconds = 0;
  const PeakMemory memory;
  on_small_stack([&] {
    const double begin = processor_seconds();
    {
      auto made = Template::compile(source, "t", drill_limits());
      status = made.status();
      if (made.is_ok()) status = made.value().render({}).status();
    }
    seconds = processor_seconds() - begin;
  });
  const std::size_t used = memory.used();
  if (ends_well) {
    EXPECT_TRUE(status.is_ok()) << status.message();
  } else {
    ASSERT_FALSE(status.is_ok());
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.message();
  }
  if (!kSanitized) {
    EXPECT_LT(seconds, kSeconds);
    EXPECT_LT(used, kMemoryBytes);
  }
  if (full()) {
    std::printf("%6.3f s %5.0f MiB %s: %s\n", seconds, static_cast<double>(used) / (1 << 20),
                name.c_str(), status.message().substr(0, 90).c_str());
  }
}

std::string times(std::size_t count, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

// `change` is done to ns.x, again and again.
std::string repeated(const std::string& change, const std::string& begin = "0",
                     const std::string& count = "99999") {
  return "{% set ns = namespace(x=" + begin + ") %}{% for j in range(50) %}{% for i in range(" +
         count + ") %}{% set ns.x = " + change + " %}{% endfor %}{% endfor %}";
}

std::string in_loops(const std::string& inside) {
  return "{% set l = [] %}{% set d = {} %}{% for j in range(99999) %}{% for i in range(99999) %}" +
         inside + "{% endfor %}{% endfor %}";
}

using Named = std::pair<std::string, std::string>;

TEST(HostileTemplates, DeepSources) {
  const std::size_t many = 100'000;
  const std::vector<Named> sources = {
      {"parentheses", "{{ " + times(many, "(") + "1" + times(many, ")") + " }}"},
      {"lists", "{{ " + times(many, "[") + times(many, "]") + " }}"},
      {"dictionaries", "{{ " + times(20'000, "{1:") + "1" + times(20'000, "}") + " }}"},
      {"open parentheses", "{{ " + times(many, "(")},
      {"not", "{{ " + times(50'000, "not ") + "1 }}"},
      {"minus", "{{ " + times(many, "-") + "1 }}"},
      {"sum", "{{ 1" + times(many, "+1") + " }}"},
      {"power", "{{ 1" + times(50'000, "**1") + " }}"},
      {"or", "{{ 0" + times(50'000, " or 0") + " }}"},
      {"conditions", "{{ 1" + times(20'000, " if 1 else 1") + " }}"},
      {"attributes", "{{ x" + times(many, ".x") + " }}"},
      {"items", "{{ x" + times(50'000, "[0]") + " }}"},
      {"calls", "{{ x" + times(50'000, "()") + " }}"},
      {"filters", "{{ x" + times(50'000, "|e") + " }}"},
      {"calls in calls", "{{ " + times(50'000, "x(") + times(50'000, ")") + " }}"},
      {"if", times(20'000, "{% if 1 %}")},
      {"for", times(10'000, "{% for x in y %}")},
      {"else if", "{% if 0 %}" + times(10'000, "{% else %}{% if 0 %}")},
      {"macros", times(10'000, "{% macro m() %}")},
      {"targets", "{% set " + times(many, "(") + "x" + times(many, ")") + " = 1 %}"},
      {"a long source", times(1 << 20, "{{x}}")},
  };
  for (const auto& [name, source] : sources) {
    Status status;
    double seconds = 0;
    const PeakMemory memory;
    on_small_stack([&, &text = source] {
      const double begin = processor_seconds();
      status = Template::compile(text, "t").status();
      seconds = processor_seconds() - begin;
    });
    EXPECT_FALSE(status.is_ok()) << name;
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << name << ": " << status.message();
    if (!kSanitized) {
      EXPECT_LT(seconds, kSeconds) << name;
      EXPECT_LT(memory.used(), kMemoryBytes) << name;
    }
  }
}

TEST(HostileTemplates, SourcesOfTheLargestSize) {
  const std::size_t bytes = 250'000;
  const auto fill = [&](const std::string& text) { return times(bytes / text.size(), text); };
  drill("outputs", fill("{{x}}"), true);
  drill("sets", fill("{%set x=1%}"), true);
  drill("loops", fill("{%for x in y%}{%endfor%}"), true);
  drill("macros", fill("{%macro m()%}{%endmacro%}"), true);
  drill(
      "many names",
      [&] {
        std::string source;
        for (int i = 0; i < 20'000; ++i) source += "{{a" + std::to_string(i) + "}}";
        return source;
      }(),
      true);
  drill(
      "many names in nested loops",
      [&] {
        std::string source = times(50, "{%for x in y%}");
        for (int i = 0; i < 15'000; ++i) source += "{{a" + std::to_string(i) + "}}";
        return source + times(50, "{%endfor%}");
      }(),
      true);
  drill("a wide list", "{{ [" + fill("1,") + "]|length }}", true);
  drill(
      "a wide dictionary",
      [&] {
        std::string source = "{{ {";
        for (int i = 0; i < 20'000; ++i) source += "'k" + std::to_string(i) + "':1,";
        return source + "}|length }}";
      }(),
      true);
}

TEST(HostileTemplates, DeepValues) {
  for (const char* change :
       {"(ns.x,)", "[ns.x]", "{'a': ns.x}", "ns.x|select", "(ns.x,).count", "{'a': ns.x}.items()",
        "cycler(ns.x)", "[ns.x]|map('list')", "[ns.x]|map('select')|first", "joiner(ns.x)",
        "namespace(a=ns.x)", "[ns.x]|batch(1)|list", "dict(a=ns.x)", "[ns.x]|groupby('zz')",
        "([ns.x]|map('map', 'list')|list)", "[ns.x]|reverse", "[[ns.x]|select|list]",
        "{'a': ns.x}|items|list", "{'a': ns.x}|dictsort"}) {
    drill(change, repeated(change, "[0]"), false);
  }
}

TEST(HostileTemplates, ValuesThatHoldThemselves) {
  // These need no limit: nothing deep comes of them.
  const std::string again = "{% for i in range(50) %}";
  drill("namespaces",
        "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}" + again +
            "{% set a.c = b %}{% set b.c = a %}{% endfor %}",
        true);
  drill("lists", "{% set a = [] %}" + again + "{% set _ = a.append(a) %}{% endfor %}", true);
  drill("dictionaries", "{% set a = {} %}{% set _ = a.update({'a': a}) %}", true);
  drill("printed", "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}", false);
  drill("compared",
        "{% set a = [] %}{% set _ = a.append(a) %}{% set b = [] %}"
        "{% set _ = b.append(b) %}{{ a == b }}",
        false);
  drill("as JSON", "{% set a = {} %}{% set _ = a.update({'a': a}) %}{{ a|tojson }}", false);
  drill(
      "macros and loops",
      "{% macro m(x) %}{% for i in [x] %}{{ loop.changed(x) }}{% endfor %}{% endmacro %}{{ m(m) }}",
      true);
  // Lists that grow at both ends of a chain.
  drill("chains of lists",
        "{% set ns = namespace(top=[], bottom=[]) %}{% set ns.bottom = ns.top %}" +
            in_loops("{% set n = [] %}{% set _ = ns.bottom.append([[[[n]]]]) %}"
                     "{% set ns.bottom = n %}"),
        false);
  drill("chains of loops",
        "{% set ns = namespace(p=0) %}" +
            in_loops("{% for k in [1] %}{% set q = [loop] %}{% set _ = loop.changed(ns.p) %}"
                     "{% set ns.p = q %}{% endfor %}"),
        false);
}

TEST(HostileTemplates, Recursion) {
  drill("a macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", false);
  drill("a macro in all it can be in",
        "{% macro m(x) %}{% for i in [1] %}{% if 1 %}{% set y %}{% filter upper %}"
        "{{ ((((m([x])|e)|trim) ~ '')|string).strip() }}{% endfilter %}{% endset %}{{ y }}"
        "{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}",
        false);
  drill("two macros",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        false);
  drill("callers",
        "{% macro m() %}{% call m() %}{{ caller() if caller }}{% endcall %}{% endmacro %}{{ m() }}",
        false);
  drill("a loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", false);
  drill("defaults", "{% macro m(x=m()) %}{% endmacro %}{{ m() }}", false);
  drill("arguments", "{% macro m(x) %}{{ m(m(m(x))) }}{% endmacro %}{{ m(1) }}", false);
  drill("filters in map",
        "{% set ns = namespace(x=[[1]]) %}{% for i in range(150) %}"
        "{% set ns.x = [ns.x|map('list')] %}{% endfor %}{{ ns.x|map('join')|join }}",
        false);
}

TEST(HostileTemplates, Sizes) {
  const std::vector<Named> templates = {
      {"a wide format", "{{ '%999999999d' % 1 }}"},
      {"a wider format", "{{ '%99999999999999999999d' % 1 }}"},
      {"a precise format", "{{ '%.999999999f' % 1 }}"},
      {"a width from arguments", "{{ '%*d' % (999999999, 1) }}"},
      {"a wide field", "{{ '{:999999999}'.format(1) }}"},
      {"a precise field", "{{ '{:.999999999f}'.format(1.5) }}"},
      {"a nested width", "{{ '{:{}}'.format(1, 999999999) }}"},
      {"center", "{{ 'a'.center(999999999) }}"},
      {"center filter", "{{ 'a'|center(999999999) }}"},
      {"zfill", "{{ 'a'.zfill(999999999) }}"},
      {"indent", "{{ ('a\\n' * 100000)|indent(99999) }}"},
      {"indent of JSON", "{{ [1]|tojson(indent=999999999) }}"},
      {"a long text", "{{ 'abc' * 999999999 }}"},
      {"a long list", "{{ [0] * 999999999 }}"},
      {"long lists", "{{ ([[0] * 99999]) * 9999 }}"},
      {"a range", "{{ range(10 ** 12) }}"},
      {"a range as a list", "{{ range(10 ** 12)|list }}"},
      {"lists of ranges", in_loops("{% set _ = l.append(range(99999)|list) %}")},
      {"a large number", "{{ 10 ** 99999 }}"},
      {"batches", "{{ [1]|batch(999999999, 0)|list }}"},
      {"slices", "{{ [1]|slice(999999999)|list }}"},
      {"rounding",
       "{% for i in range(99999) %}{% for j in range(999) %}{{ 1.5|round(300) }}"
       "{% endfor %}{% endfor %}"},
      {"a text doubled", repeated("ns.x ~ ns.x", "'aaaaaaaa'")},
      {"a list doubled", repeated("ns.x + ns.x", "[1]")},
      {"a text doubled by replacing", repeated("ns.x|replace('a', 'aa')", "'a'")},
      {"a text doubled by joining", repeated("ns.x|join(ns.x)", "'aa'")},
      {"a text backwards", "{{ (('a' * 1000) * 30000)[::-1] }}"},
      {"a wide text backwards", "{{ (('é' * 1000) * 15000)[::-1] }}"},
      {"a text that grows", repeated("ns.x ~ 'a' * 999", "''")},
      {"a list that grows", repeated("ns.x + [i]", "[]")},
  };
  for (const auto& [name, source] : templates) drill(name, source, false);
}

TEST(HostileTemplates, HeldMemory) {
  const std::vector<Named> templates = {
      {"numbers", in_loops("{% set _ = l.append(i) %}")},
      {"texts", in_loops("{% set _ = l.append(i ~ '') %}")},
      {"long texts", in_loops("{% set _ = l.append('a' * 99999) %}")},
      {"lists", in_loops("{% set _ = l.append([]) %}")},
      {"tuples", in_loops("{% set _ = l.append((i, i)) %}")},
      {"dictionaries", in_loops("{% set _ = l.append({'a': i}) %}")},
      {"undefined", in_loops("{% set _ = l.append(nobody) %}")},
      {"methods", in_loops("{% set _ = l.append(l.copy) %}")},
      {"iterators", in_loops("{% set _ = l.append(l|select) %}")},
      {"reversed", in_loops("{% set _ = l.append(range(99999)|reverse) %}")},
      {"unique", in_loops("{% set _ = l.append(range(99999)|unique) %}{{ l[-1]|first }}")},
      {"unique, taken",
       in_loops("{% set u = range(99999)|unique %}{% set _ = l.append(u) %}"
                "{% for x in u %}{% if x > 99990 %}{% break %}{% endif %}{% endfor %}")},
      {"namespaces", in_loops("{% set _ = l.append(namespace(a=1)) %}")},
      {"macros", in_loops("{% macro m() %}{% endmacro %}{% set _ = l.append(m) %}")},
      {"macros with loops",
       "{% macro m() %}{% for i in [1] %}{{ loop.index }}{% endfor %}{% endmacro %}" +
           in_loops("{% set _ = m() %}")},
      {"keys", in_loops("{% set _ = d.update({j ~ i: i}) %}")},
      {"keys of numbers", in_loops("{% set _ = d.update({i + 100000 * j: i}) %}")},
      {"split texts", in_loops("{% set _ = l.append(('a ' * 99999).split()) %}")},
      {"characters", in_loops("{% set _ = l.append(('a' * 99999)|list) %}")},
      {"output", in_loops("{{ 'a' * 9999 }}")},
      {"captured output",
       in_loops("{% set x %}{{ 'a' * 99999 }}{% endset %}{% set _ = l.append(x) %}")},
      {"output within output",
       times(50, "{% set x %}{{ 'a' * 30000000 }}") + times(50, "{% endset %}")},
  };
  for (const auto& [name, source] : templates) drill(name, source, false);
}

TEST(HostileTemplates, Work) {
  const std::string texts =
      "{% set t = ('a' * 1000) * 900 %}{% set u = ('a' * 1000) * 900 %}"
      "{% set v = ('é' * 1000) * 400 %}{% set b = 'a' * 60 ~ 'b' %}";
  for (const char* change : {"t|e",
                             "t|tojson",
                             "t|urlencode",
                             "t|upper",
                             "t.title()",
                             "t|title",
                             "t.islower()",
                             "t.istitle()",
                             "t.isalpha()",
                             "t|wordcount",
                             "t.strip('a')",
                             "''.strip(t)",
                             "'b' in t",
                             "b in t",
                             "t.find(b)",
                             "t.rfind(b)",
                             "t.count(b)",
                             "t.split(b)",
                             "t.replace(b, '')",
                             "t.rsplit(b)",
                             "t.partition(b)",
                             "t.rpartition(b)",
                             "t == u",
                             "t < u",
                             "t.startswith(u)",
                             "t.endswith(u)",
                             "{t: 1}[u]",
                             "{}[t]",
                             "{t: 1, u: 2}",
                             "t in [u]",
                             "t|replace('a', 'b')",
                             "t|replace('', '-')",
                             "t|indent",
                             "v|truncate(399990, leeway=0)",
                             "v[399999]",
                             "v[-1:]",
                             "v[::-1]",
                             "t|reverse",
                             "v|length",
                             "t|list",
                             "t|first",
                             "t|last",
                             "t.splitlines()",
                             "t.split('a')",
                             "t|int",
                             "t|float",
                             "'%s' % t",
                             "'%r' % t",
                             "'{}'.format(t)",
                             "'{!r:>9}'.format(t)",
                             "t|trim",
                             "t|sort",
                             "t|unique|list",
                             "t|map('upper')|join",
                             "t|select('in', 'b')|list",
                             "t|batch(9)|list",
                             "[t]|join('b')",
                             "t|center(900001)",
                             "t.zfill(900001)",
                             "t|string",
                             "t|safe|e",
                             "(t|safe) ~ t",
                             "t|capitalize",
                             "t.swapcase()",
                             "t.removeprefix(u)",
                             "t|max",
                             "t|count",
                             "t.lower()",
                             "v.upper()",
                             "v.index('b') if 0 else v.find('b')",
                             "strftime_now('%A' * 200)",
                             "t|attr(t)",
                             "d[t] if d is defined else nobody[t] if 0 else 1",
                             "range(99999)|sum",
                             "range(99999)|list|sort(reverse=true)",
                             "range(99999)|max",
                             "99999 in range(99999)|list",
                             "range(99999)|map('string')|join(',')",
                             "range(99999)|tojson if 0 else range(99999)|list|tojson",
                             "range(99999)|list|string",
                             "range(99999)|groupby('real', default=1)|length",
                             "range(99999)|unique|list|length",
                             "range(99999)|batch(2)|list|length",
                             "range(99999)|list|last",
                             "[range(99999)|list] == [range(99999)|list]",
                             "range(99999)|slice(9)|list|length",
                             "dict(range(10000)|map('string')|batch(2)|list)|dictsort|length",
                             "9999 is in(range(9999)|list)"}) {
    drill(change, texts + repeated(change), false);
  }
  drill("words within words",
        "{% set w = ('a' * 1000) * 500 ~ 'b' %}" + repeated("w in (('a' * 1000) * 900)"), false);
  drill("empty loops", in_loops(""), false);
  drill("doubled tuples as keys",
        "{% set ns = namespace(x=1) %}{% for i in range(60) %}"
        "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1}[ns.x] }}",
        false);
  drill("doubled lists compared",
        "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
        "{{ ns.x == ns.y }}",
        false);
  drill("doubled lists printed",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        false);
  drill("doubled lists as JSON",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        false);
}

}  // namespace
}  // namespace moepack::jinja::hostile_test
