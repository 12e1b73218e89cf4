// Compiles the solver for registers of 64 bytes, for processors that have them.
#define FBETA_REGISTER_BYTES 64
#include "engine.hpp"
#ifdef FBETA_WIDE
#include "matrix.cpp"
#include "newton.cpp"
#endif
