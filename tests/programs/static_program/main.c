/* Linked statically: no library can be loaded with it. */
#include <fcntl.h>

int main(int count, char **arguments)
{
	return count > 1 && open(arguments[1], O_WRONLY | O_CREAT, 0600) < 0;
}
