/* Says everything of farmem.h about a page, and prints the answers; compiled in several ways. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "farmem.h"

int main(void)
{
	char *memory = (char *)malloc(1 << 20);
	int present = farmem_is_present();
	errno = 0;
	printf("%d %d %d %d %d %d %d\n", present, farmem_prefetch(memory, 1 << 20), farmem_cold(memory, 1 << 20),
	       farmem_pin(memory, 1 << 20), farmem_unpin(memory, 1 << 20), farmem_prefetch(memory, (size_t)-1) != 0, errno);
	free(memory);
	return 0;
}
