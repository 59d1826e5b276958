// Stands in for CUDA's header of this name; the types are in small_floats.h, which every candidate has already.
#pragma once
