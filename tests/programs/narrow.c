// A program of 32 bits without any library, so that it can be compiled where there is none: it takes 32 MiB, writes and reads them, and ends with 7.
enum { EXIT = 1, WRITE = 4, MMAP2 = 192, BYTES = 32 << 20, PAGE = 4096 };

static int call(int number, int first, int second, int third, int fourth, int fifth)
{
	int result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third), "S"(fourth), "D"(fifth) : "memory");
	return result;
}

void _start(void)
{
	enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
	// The last argument would be in %ebp, and is not looked at where there is no file.
	volatile unsigned char *memory = (unsigned char *)call(MMAP2, 0, BYTES, READ_WRITE, PRIVATE_ANONYMOUS, -1);
	int wrong = 0;
	for (int turn = 0; turn < 20; turn++)
		for (int page = 0; page < BYTES / PAGE; page++) {
			wrong += memory[page * PAGE] != (unsigned char)(turn * page);
			memory[page * PAGE] += page;
		}
	call(WRITE, 1, (int)(wrong ? "wrong\n" : "right\n"), 6, 0, 0);
	call(EXIT, 7, 0, 0, 0, 0);
}
