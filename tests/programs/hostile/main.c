/* A program that means harm, next to one that doesn't, both below one supervisor: hostile CHECK FOLDER.
 *
 * The first process starts a neighbour, which has its memory verified all the time, and an attacker, which is over budget and does to its own pager what CHECK
 * says. Then it looks at the neighbour's bytes and at what the supervisor holds. All it sends signals to are its own children and their puppets. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../include/farmem.h"

enum { PAGE = 4096, MIB = 1 << 20, ATTACKED = 24 * MIB, NEIGHBOURS = 16 * MIB };
enum { NOBODY = 65534, KCMP_ADDRESS_SPACE = 1 };
/* An attacker that was ended by its supervisor has got what it wanted; one that ends so has found a fault. */
enum { FOUND = 3 };

static const char *folder;

static void end(const char *reason)
{
	printf("%s: %s\n", reason, strerror(errno));
	fflush(stdout);
	_exit(FOUND);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static uint64_t next_random(void)
{
	static uint64_t state = 88172645463325252;
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void scribble(void *to, size_t bytes)
{
	for (size_t at = 0; at + 8 <= bytes; at += 8)
		*(volatile uint64_t *)((char *)to + at) = next_random();
}

static uint64_t *fresh(size_t bytes)
{
	uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (words == MAP_FAILED)
		end("mmap");
	for (size_t at = 0; at < bytes / 8; at++)
		words[at] = at * 0x9e3779b97f4a7c15;
	return words;
}

static size_t wrong_words(const uint64_t *words, size_t bytes)
{
	size_t wrong = 0;
	for (size_t at = 0; at < bytes / 8; at++)
		wrong += words[at] != at * 0x9e3779b97f4a7c15;
	return wrong;
}

/* Touches all of it for so long; what is there is the attacker's own business. */
static void press(uint64_t *words, double seconds)
{
	double began = now();
	do
		for (size_t at = 0; at < ATTACKED / 8; at += PAGE / 8)
			words[at]++;
	while (now() - began < seconds);
}

/* --- the puppet */

static struct {
	int process;
	uintptr_t start, code, shared, shared_end, staging, end;
} puppet;

/* Where its things are, by the list of mappings: unusable pages, code, unusable, shared memory, unusable, staging, unusable. */
static int find_mapping(void)
{
	struct { uintptr_t start, end; char rights[8], name[128]; } line = {0}, lines[3] = {0};
	char text[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(text, sizeof(text), maps)) {
		line.name[0] = 0;
		sscanf(text, "%lx-%lx %7s %*s %*s %*s %127[^\n]", &line.start, &line.end, line.rights, line.name);
		if (found == 0 && strstr(line.name, "memfd:farmem-puppet")) {
			puppet.start = lines[0].start;
			puppet.code = lines[1].start;
			puppet.shared = line.start;
			puppet.shared_end = line.end;
			found = 1;
		} else if (found > 0 && found < 4) {
			if (found == 2)
				puppet.staging = line.start;
			puppet.end = line.end;
			found++;
		}
		lines[0] = lines[1];
		lines[1] = lines[2];
		lines[2] = line;
	}
	if (maps)
		fclose(maps);
	return found == 4;
}

static int find_process(void)
{
	struct dirent *entry;
	DIR *processes = opendir("/proc");
	puppet.process = 0;
	while (processes && puppet.process == 0 && (entry = readdir(processes)) != NULL) {
		int number = atoi(entry->d_name);
		if (number > 0 && number != getpid() && syscall(SYS_kcmp, getpid(), number, KCMP_ADDRESS_SPACE, 0, 0) == 0)
			puppet.process = number;
	}
	if (processes)
		closedir(processes);
	return puppet.process != 0;
}

static uint64_t *over_budget(void)
{
	double began = now();
	uint64_t *words = fresh(ATTACKED);
	while (!find_mapping() || !find_process()) {
		press(words, 0.01);
		if (now() - began > 20)
			end("no pager came");
	}
	/* Some of it is far by now. */
	press(words, 0.2);
	return words;
}

/* --- what is done to it; whatever becomes of the attacker */

static void scribbles(void)
{
	uint64_t *words = over_budget();
	for (double began = now(); now() - began < 2; press(words, 0)) {
		scribble((void *)puppet.shared, puppet.shared_end - puppet.shared);
		scribble((void *)puppet.staging, puppet.end - PAGE - puppet.staging);
	}
}

static void changes_code(void)
{
	uint64_t *words = over_budget();
	if (mprotect((void *)puppet.code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
		end("mprotect");
	scribble((void *)puppet.code, PAGE);
	press(words, 2);
}

static void unmaps(void)
{
	uint64_t *words = over_budget();
	munmap((void *)puppet.start, puppet.end - puppet.start);
	press(words, 2);
}

static void signals(int signal)
{
	uint64_t *words = over_budget();
	kill(puppet.process, signal);
	press(words, 2);
}

static void kills(void)
{
	signals(SIGKILL);
}

static void stops(void)
{
	signals(SIGSTOP);
}

static void traces(void)
{
	uint64_t *words = over_budget();
	/* Its pager traces it already. */
	if (ptrace(PTRACE_SEIZE, puppet.process, 0, 0) == 0 || ptrace(PTRACE_ATTACH, puppet.process, 0, 0) == 0)
		end("the puppet can be traced");
	press(words, 1);
}

/* A number in one of the kernel's files about a process; -1 where it isn't. */
static long long field(int process, const char *name, int base)
{
	char path[64], line[256];
	long long value = -1;
	snprintf(path, sizeof(path), "/proc/%d/status", process);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = (long long)strtoull(line + strlen(name), NULL, base);
	if (file)
		fclose(file);
	return value;
}

/* Has the puppet make a call. What it came to, or 1 when it was not made. */
static int64_t command(uint64_t number, uint64_t one, uint64_t two, uint64_t three)
{
	const int64_t UNMADE = 1;
	_Atomic uint32_t *request = (void *)puppet.shared;
	_Atomic uint64_t *call = (void *)(puppet.shared + 64);
	uint64_t arguments[8] = {number, one, two, three, 0, 0, 0, UNMADE};
	for (int nth = 0; nth < 8; nth++)
		call[nth] = arguments[nth];
	request[2] = 1;
	request[0]++;
	syscall(SYS_futex, request, FUTEX_WAKE, 1, NULL, NULL, 0);
	for (double began = now(); now() - began < 1 && call[7] == (uint64_t)UNMADE;)
		usleep(100);
	return call[7];
}

/* A server gives up root, and then somebody takes it over: the puppet was made while it was root. */
static void wants_rights_back(void)
{
	static const char *const NONE[] = {"CapInh:", "CapPrm:", "CapEff:", "CapAmb:"};
	char path[4096];
	over_budget();
	snprintf(path, sizeof(path), "%s/of-root", folder);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	for (int nth = 0; nth < 4; nth++)
		if (field(puppet.process, NONE[nth], 16) != 0)
			end(NONE[nth]);
	if (field(puppet.process, "NoNewPrivs:", 10) != 1 || field(puppet.process, "Seccomp:", 10) != 2)
		end("the puppet isn't filtered");
	if (field(puppet.process, "Uid:", 10) != getuid() || field(puppet.process, "Gid:", 10) != getgid())
		end("the puppet has another user");
	if (chmod(folder, 0711) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
		end("giving up root");
	prctl(PR_SET_DUMPABLE, 1);
	/* What goes on with its memory meanwhile isn't of interest: the pager's own calls are disturbed by these. */
	const uint64_t here = (uint64_t)path;
	const uint64_t calls[][4] = {
		{SYS_geteuid, 0, 0, 0},
		{SYS_chmod, here, 0666, 0},
		{SYS_open, here, O_RDONLY, 0},
		{SYS_kill, getppid(), 0, 0},
		{SYS_mmap, 0, PAGE, PROT_READ},
		{SYS_mlockall, MCL_CURRENT, 0, 0},
		{SYS_setuid, 0, 0, 0},
		{SYS_ptrace, PTRACE_TRACEME, 0, 0},
		{SYS_prctl, PR_SET_DUMPABLE, 1, 0},
		{SYS_ioctl, 0, 0x5401, here},
	};
	for (size_t nth = 0; nth < sizeof(calls) / sizeof(*calls); nth++) {
		int64_t result = 0;
		/* A result may be that of a call of the pager's own, made at this moment. A call that the puppet may make succeeds each time. */
		for (int time = 0; time < 10 && result != -EPERM && result != 1; time++)
			result = command(calls[nth][0], calls[nth][1], calls[nth][2], calls[nth][3]);
		if (result != -EPERM && result != 1) {
			printf("call %lu: %ld\n", calls[nth][0], result);
			end("the puppet does what it is told");
		}
		if (nth == 0 && result == 1)
			end("the puppet wasn't asked");
	}
	if (open(path, O_RDONLY) >= 0)
		end("a file of root's is open");
}

static void garbles_mailbox(void)
{
	uint64_t *mailbox = farmem_mailbox();
	if (mailbox == NULL)
		end("a mailbox");
	uint64_t *words = over_budget();
	for (double began = now(); now() - began < 3; press(words, 0))
		scribble(mailbox + FARMEM_AT_PAGER, 8 * (FARMEM_WORDS - FARMEM_AT_PAGER));
}

static void forks(void)
{
	uint64_t *words = over_budget();
	int running = 0;
	for (int nth = 0; nth < 2000; nth++) {
		int child = fork();
		if (child == 0) {
			for (int page = 0; page < 16; page++)
				words[(next_random() ^ nth * 977) % (ATTACKED / 8)]++;
			_exit(0);
		}
		running += child > 0;
		while (running > 32 && wait(NULL) > 0)
			running--;
	}
	while (wait(NULL) > 0)
		;
}

static void closes_descriptors(void)
{
	uint64_t *words = over_budget();
	close_range(0, ~0U, 0);
	press(words, 1);
}

static void hides(void)
{
	uint64_t *words = over_budget();
	prctl(PR_SET_DUMPABLE, 0);
	if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
		end("giving up root");
	prctl(PR_SET_DUMPABLE, 0);
	for (int nth = 0; nth < 8; nth++)
		if (fork() == 0) {
			press(words, 0.5);
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	press(words, 0.5);
}

static void changes_name(void)
{
	static const char *const NAMES[] = {"\x1b[2J\a\n\r", ") R 1 1 1 (", "\xff\xfe%s%n", "\n\nVmRSS: 0 kB\n", "", " ", "0\t0"};
	enum { COUNT = sizeof(NAMES) / sizeof(*NAMES) };
	char path[4096];
	snprintf(path, sizeof(path), "%s/\xff\n%%s 0-1 rw-p", folder);
	int file = open(path, O_CREAT | O_RDWR, 0600);
	if (ftruncate(file, PAGE) != 0 || mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED)
		end("a file of that name");
	for (int nth = 0; nth < COUNT; nth++)
		if (fork() == 0) {
			prctl(PR_SET_NAME, NAMES[nth]);
			/* Whatever it is called, a pager comes to it. */
			over_budget();
			_exit(0);
		}
	for (int status; wait(&status) > 0;)
		if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			_exit(WEXITSTATUS(status));
}

static void runs_others(const char *own)
{
	/* Each has had a pager, or is just getting one. */
	for (int nth = 0; nth < 12; nth++)
		if (fork() == 0) {
			press(fresh(ATTACKED), nth * 0.05);
			execl(own, own, "nothing", folder, NULL);
			_exit(1);
		}
	while (wait(NULL) > 0)
		;
}

/* --- a Java VM that is none: a copy of this program by the name of the VM's library exports these */

enum { ENTRIES = 1 << 16 };
struct entry {
	const char *type, *name;
	uint64_t offset;
	void *address;
};
struct entry entries[ENTRIES];
void *gHotSpotVMStructs = entries;
uint64_t gHotSpotVMStructEntryTypeNameOffset = 0;
uint64_t gHotSpotVMStructEntryFieldNameOffset = 8;
uint64_t gHotSpotVMStructEntryOffsetOffset = 16;
uint64_t gHotSpotVMStructEntryAddressOffset = 24;
uint64_t gHotSpotVMStructEntryArrayStride = sizeof(struct entry);

static void is_no_vm(int kind)
{
	static const struct { const char *type, *name; } FIELDS[] = {
		{"CompressedOops", "_base"}, {"CompressedOops", "_shift"}, {"Universe", "_collectedHeap"},
		{"CollectedHeap", "_reserved"}, {"MemRegion", "_start"}, {"MemRegion", "_word_size"},
	};
	uint64_t *words = fresh(ATTACKED);
	static uint64_t values[8];
	for (int nth = 0; nth < ENTRIES; nth++)
		entries[nth] = (struct entry){FIELDS[nth % 6].type, FIELDS[nth % 6].name, 8, &values[nth % 8]};
	switch (kind) {
	case 0: /* Without an end, each name on another page, most of them far. */
		for (int nth = 0; nth < ENTRIES; nth++)
			entries[nth].type = (char *)words + (uint64_t)nth * PAGE % ATTACKED;
		break;
	case 1: /* Each entry is the next one. */
		gHotSpotVMStructEntryArrayStride = 0;
		break;
	case 2: /* Offsets that pass the end of all addresses. */
		gHotSpotVMStructEntryOffsetOffset = gHotSpotVMStructEntryAddressOffset = UINT64_MAX;
		gHotSpotVMStructs = (void *)UINT64_MAX;
		break;
	case 3: /* A heap of all addresses, with a shift longer than a word. */
		for (int nth = 0; nth < 8; nth++)
			values[nth] = UINT64_MAX;
		memset(&entries[6], 0, sizeof(*entries));
		break;
	case 4: /* A base and a heap that are far and come to nothing. */
		for (int nth = 0; nth < 8; nth++)
			values[nth] = (uint64_t)words + nth * PAGE;
		memset(&entries[6], 0, sizeof(*entries));
		break;
	}
	press(words, 2);
}

static void plays_vm(const char *own)
{
	char path[4096], kind[2] = "0";
	snprintf(path, sizeof(path), "%s/libjvm.so", folder);
	int from = open(own, O_RDONLY), to = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0755);
	char bytes[65536];
	for (ssize_t count; (count = read(from, bytes, sizeof(bytes))) > 0;)
		if (write(to, bytes, count) != count)
			end("a copy");
	close(from);
	close(to);
	for (; kind[0] < '5'; kind[0]++)
		if (fork() == 0) {
			execl(path, path, "vm", folder, kind, NULL);
			_exit(1);
		}
	for (int status; wait(&status) > 0;)
		if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			end("a VM that is none");
}

/* --- the neighbour, and what the supervisor holds */

static size_t neighbour(int stop)
{
	uint64_t *words = fresh(NEIGHBOURS);
	size_t wrong = 0;
	char byte;
	fcntl(stop, F_SETFL, O_NONBLOCK);
	while (read(stop, &byte, 1) != 0)
		wrong += wrong_words(words, NEIGHBOURS);
	return wrong + wrong_words(words, NEIGHBOURS);
}

static long descriptors(int process)
{
	char path[64];
	long count = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", process);
	DIR *there = opendir(path);
	if (!there)
		return -1;
	while (readdir(there))
		count++;
	closedir(there);
	return count;
}

static void attack(const char *check, const char *own)
{
	static const struct { const char *name; void (*attack)(void); } ATTACKS[] = {
		{"scribbles", scribbles}, {"changes-code", changes_code}, {"unmaps", unmaps},
		{"kills", kills}, {"stops", stops}, {"traces", traces},
		{"wants-rights-back", wants_rights_back}, {"garbles-mailbox", garbles_mailbox}, {"forks", forks},
		{"closes-descriptors", closes_descriptors}, {"hides", hides}, {"changes-name", changes_name},
	};
	if (strcmp(check, "runs-others") == 0)
		return runs_others(own);
	if (strcmp(check, "plays-vm") == 0)
		return plays_vm(own);
	for (size_t nth = 0; nth < sizeof(ATTACKS) / sizeof(*ATTACKS); nth++)
		if (strcmp(check, ATTACKS[nth].name) == 0)
			return ATTACKS[nth].attack();
	end("no such check");
}

int main(int count, char **arguments)
{
	if (count < 3)
		return 2;
	folder = arguments[2];
	if (strcmp(arguments[1], "nothing") == 0)
		return 0;
	if (strcmp(arguments[1], "vm") == 0 && count > 3) {
		is_no_vm(atoi(arguments[3]));
		return 0;
	}
	int ends[2], status = 0, supervisor = getppid();
	size_t wrong = 0;
	if (pipe(ends) != 0)
		end("pipe");
	int quiet = fork();
	if (quiet == 0) {
		close(ends[1]);
		_exit(neighbour(ends[0]) != 0);
	}
	close(ends[0]);
	sleep(1);
	long held = descriptors(supervisor), memory = field(supervisor, "RssAnon:", 10);
	int attacker = fork();
	if (attacker == 0) {
		close(ends[1]);
		attack(arguments[1], arguments[0]);
		_exit(0);
	}
	/* A pager that can't go on is ended after a while, and its program with it. */
	for (double began = now(); waitpid(attacker, &status, WNOHANG) == 0; usleep(10000))
		if (now() - began > 180) {
			printf("the attacker is stuck\n");
			wrong++;
			kill(attacker, SIGKILL);
			waitpid(attacker, &status, 0);
			break;
		}
	wrong += WIFEXITED(status) && WEXITSTATUS(status) != 0;
	printf("the attacker %s %d\n", WIFEXITED(status) ? "ends with" : "is ended by", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	/* The neighbour works for another while without it. */
	sleep(1);
	close(ends[1]);
	if (waitpid(quiet, &status, 0) != quiet || status != 0) {
		printf("the neighbour has other bytes, or has ended: %d\n", status);
		wrong++;
	}
	/* What belonged to processes that have ended goes with them, a little later. */
	const long MORE = 8, MORE_KIB = 16 << 10;
	double began = now();
	while (descriptors(supervisor) > held + MORE && now() - began < 10)
		usleep(10000);
	if (held < 0 || descriptors(supervisor) > held + MORE) {
		printf("the supervisor has %ld descriptors, and had %ld\n", descriptors(supervisor), held);
		wrong++;
	}
	if (memory < 0 || field(supervisor, "RssAnon:", 10) > memory + MORE_KIB) {
		printf("the supervisor has %lld KiB, and had %ld\n", field(supervisor, "RssAnon:", 10), memory);
		wrong++;
	}
	printf("%s: %zu wrong\n", arguments[1], wrong);
	return wrong != 0;
}
