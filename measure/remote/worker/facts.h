/* What identifies this machine, as lines "name value"; `measure.remote.facts` reads them. */
#ifndef LOOPWRIGHT_FACTS_H_
#define LOOPWRIGHT_FACTS_H_

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#define MOST_FACTS (1 << 20)
#define CPUS "/sys/devices/system/cpu/cpu%d/"

static char facts[MOST_FACTS];
static size_t facts_length;

static void tell(const char *format, ...) {
  va_list list;
  va_start(list, format);
  int n = vsnprintf(facts + facts_length, MOST_FACTS - facts_length, format, list);
  va_end(list);
  if (n > 0 && (size_t)n < MOST_FACTS - facts_length) facts_length += (size_t)n;
}

/* A small file's text, without the newline at its end; empty if it cannot be read. */
static const char *text_of(char *text, size_t most, const char *format, ...) {
  char path[256];
  va_list list;
  va_start(list, format);
  vsnprintf(path, sizeof path, format, list);
  va_end(list);
  size_t length = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    for (ssize_t n; length < most - 1 && (n = read(fd, text + length, most - 1 - length)) > 0;)
      length += (size_t)n;
    close(fd);
  }
  while (length && (text[length - 1] == '\n' || text[length - 1] == ' ')) length--;
  text[length] = 0;
  return text;
}

/* Value of a line of /proc/cpuinfo. */
static void tell_cpuinfo(const char *name, const char *text, const char *label) {
  for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : 0) {
    size_t n = strlen(label);
    if (strncmp(line, label, n) || (line[n] != '\t' && line[n] != ' ' && line[n] != ':')) continue;
    const char *value = strchr(line, ':');
    if (!value) return;
    value += strspn(value, ": \t");
    tell("%s %.*s\n", name, (int)strcspn(value, "\n"), value);
    return;
  }
}

static void tell_flags(const char *cpuinfo) {
#ifdef __aarch64__
  /* As the system numbers them; an emulator may show the flags of another processor. */
  static const struct { int word, bit; const char *name; } all[] = {
      {0, 1, "asimd"}, {0, 10, "asimdhp"}, {0, 20, "asimddp"}, {0, 22, "sve"},
      {0, 8, "atomics"}, {1, 13, "i8mm"}, {1, 14, "bf16"}};
  unsigned long words[] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  (void)cpuinfo;
  tell("flags");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (words[all[i].word] >> all[i].bit & 1) tell(" %s", all[i].name);
  tell("\n");
#else
  tell_cpuinfo("flags", cpuinfo, "flags");
#endif
}

static uint64_t memory_bytes(void) {
  char text[64];
  uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t limit = strtoull(text_of(text, sizeof text, "/sys/fs/cgroup/memory.max"), NULL, 10);
  return limit && limit < bytes ? limit : bytes;
}

static void tell_processor(int cpu) {
  static const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
  char text[4][256];
  tell("cpu %d %s\n", cpu, text_of(text[0], sizeof text[0], CPUS "topology/thread_siblings_list", cpu));
  for (int index = 0; index < 8; index++) {
    for (int i = 0; i < 4; i++)
      text_of(text[i], sizeof text[i], CPUS "cache/index%d/%s", cpu, index, names[i]);
    if (!*text[0]) return;
    tell("cache %d %s %s %s %s\n", cpu, text[0], text[1], text[2], text[3]);
  }
}

static void tell_facts(void) {
  static char cpuinfo[16 << 10];
  char text[256];
  struct utsname system;
  cpu_set_t set;
  facts_length = 0;
  text_of(cpuinfo, sizeof cpuinfo, "/proc/cpuinfo");
  if (!uname(&system))
    tell("architecture %s\nsystem %s %s\nhost %s\n", system.machine, system.sysname, system.release,
         system.nodename);
  tell_cpuinfo("processor", cpuinfo, "model name");
  tell_cpuinfo("hardware", cpuinfo, "Hardware");
  tell_cpuinfo("vendor", cpuinfo, "vendor_id");
  tell_cpuinfo("family", cpuinfo, "cpu family");
  tell_cpuinfo("model", cpuinfo, "model");
  tell("board %s\n", text_of(text, sizeof text, "/proc/device-tree/model"));
  tell_flags(cpuinfo);
  tell("memory %llu\n", (unsigned long long)memory_bytes());
  tell("share %s\n", text_of(text, sizeof text, "/sys/fs/cgroup/cpu.max"));
  if (sched_getaffinity(0, sizeof set, &set)) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set)) tell_processor(cpu);
}

#endif
