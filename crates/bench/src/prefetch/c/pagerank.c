/*
 * PageRank as products of a sparse matrix and a vector, by rows, as GraphBLAS has it: pagerank BYTES. Edges lead to few vertices often.
 */
#include "measured.h"

enum { EDGES = 16, ITERATIONS = 5 };

int main(int count, char **arguments)
{
	uint64_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) : 1 << 24;
	uint64_t vertices = bytes / (EDGES * sizeof(uint32_t) + 3 * sizeof(double) + sizeof(uint64_t) + sizeof(uint32_t));
	uint64_t *rows = obtain(vertices + 1, sizeof *rows);
	uint32_t *columns = obtain(vertices * EDGES, sizeof *columns);
	uint32_t *degrees = obtain(vertices, sizeof *degrees);
	double *rank = obtain(vertices, sizeof *rank);
	double *share = obtain(vertices, sizeof *share);
	double *next = obtain(vertices, sizeof *next);
	for (uint64_t row = 0, edge = 0; row < vertices; row++) {
		for (unsigned each = 0; each < EDGES; each++, edge++) {
			/* The cube prefers small numbers, which are then scattered. */
			double chance = (double)(scattered(edge) >> 11) / (double)(1ull << 53);
			uint64_t popular = (uint64_t)(chance * chance * chance * (double)vertices);
			columns[edge] = (uint32_t)(popular * 2654435761u % vertices);
			degrees[columns[edge]]++;
		}
		rows[row + 1] = edge;
		rank[row] = 1.0;
	}

	double began = now();
	for (int iteration = 0; iteration < ITERATIONS; iteration++) {
		for (uint64_t row = 0; row < vertices; row++)
			share[row] = degrees[row] > 0 ? rank[row] / degrees[row] : 0.0;
		for (uint64_t row = 0; row < vertices; row++) {
			double sum = 0.0;
			for (uint64_t edge = rows[row]; edge < rows[row + 1]; edge++)
				sum += share[columns[edge]];
			next[row] = 0.15 + 0.85 * sum;
		}
		double *last = rank;
		rank = next;
		next = last;
	}
	double sum = 0.0;
	for (uint64_t row = 0; row < vertices; row++)
		sum += rank[row] * (double)(row % 7);
	tell("sum", (uint64_t)(sum * 1000.0), began);
	return 0;
}
