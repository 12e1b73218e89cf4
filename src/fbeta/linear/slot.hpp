// What a slot of the solver knows of its problem, and the search for a step along a direction.
#pragma once

#include <algorithm>
#include <cmath>

#include "objectives.hpp"

namespace fbeta {

enum class Stage { IDLE, MOVE, GRADE, CENTRE, SEARCH };

struct Slot {
    Stage stage;
    int problem, classes, iteration, steps, stalled, started, far, centred, known;
    double value, slope, lower, upper, gamma, smallest, limit, share, scale, rz, loss, goal;

    bool moves() const { return stage == Stage::MOVE || stage == Stage::GRADE; }

    // Set the size that the Newton decrement has to reach.
    void set_goal(const Problems &q) {
        goal = far ? 0 : 2 * q.tol_share * q.tol * (value + q.objective_floor);
    }

    // Bounds of the Newton decrement before conjugate gradients, where the residual R, scaled to
    // R' M^-1 R = 1, had the squared norm `size` and R' H^-1 R is at most `most`.
    void begin_search(const Problems &q, double size, double most) {
        scale = size > 0 ? std::sqrt(size) : 1;
        steps = 0;
        rz = size > 0 ? 1 : 0;
        lower = 0;
        bool bounded = smallest > 0 && size > 0;
        gamma = bounded ? 1 / smallest : INFINITY;
        upper = bounded ? std::min(gamma, most / size) : INFINITY;
        limit = goal / (scale * scale);
        share = std::min(std::max(q.residual_share * limit, q.forcing), q.max_forcing);
    }

    // The same after a step. Returns the share of the last conjugate direction in the next one.
    double add_step(double length, double size, double most) {
        bool going = length > 0 && size >= 0;
        double ratio = going ? size / rz : 0, rest = gamma - length;
        lower += length * rz;
        bool sound = going && rest > 0 && std::isfinite(rest);
        gamma = sound ? rest / (smallest * rest + ratio) : INFINITY;
        upper = sound ? lower + std::min(gamma * size, most) : INFINITY;
        rz = size;
        steps++;
        return ratio;
    }
};

// Finds a step at which the slope is small, from scores u along their changes v, (classes, rows).
template <class S> struct StepSearch {
    static constexpr int PART = 128;
    const Problems &q;
    const Objective<S> &objective;
    const S *y, *weight;
    int classes;
    const S *u, *v;
    S *work; // (2 classes + 4, PART)

    // The slope of the losses at a step.
    double slope(S step) const {
        S *trial = work, *f = trial + (size_t)classes * PART, *h = f + PART;
        double out = 0;
        for (int from = 0; from < q.n_rows; from += PART) {
            int count = std::min(PART, q.n_rows - from);
            for (int c = 0; c < classes; c++)
                for (int i = 0; i < count; i++) {
                    size_t place = (size_t)c * q.n_rows + from + i;
                    trial[(size_t)c * PART + i] = u[place] + step * v[place];
                }
            const S *w = weight ? weight + from : nullptr;
            objective.rows(y + from, w, classes, count, PART, trial, f, h, false);
            for (int c = 0; c < classes; c++)
                for (int i = 0; i < count; i++)
                    out += trial[(size_t)c * PART + i] * v[(size_t)c * q.n_rows + from + i];
        }
        return out;
    }

    // `first` is the slope at 0; `pull` and `bend` those of the penalty: at t, pull + t bend.
    double find(double first, double pull, double bend) const {
        double low = 0, high = INFINITY, at_low = first, at_high = 0, t = q.first_step;
        for (int trial = 0; trial < q.max_trials; trial++) {
            double now = pull + t * bend + slope(S(t));
            if (now >= q.slope_before * first && now <= 0) // it is lower there than at the start
                return t;
            if (now < 0) // false for NaN: an overflow is too far
                low = t, at_low = now;
            else
                high = t, at_high = now;
            double share = at_low / (at_low - at_high);
            share = share >= q.secant_margin ? std::min(share, 1 - q.secant_margin) : q.secant_margin;
            t = std::isfinite(high) ? low + share * (high - low) : q.step_growth * low;
        }
        return low;
    }
};

// Invert the first rows and columns of a small matrix, by Gauss and Jordan.
inline void invert(double *A, int stride, int order) {
    for (int k = 0; k < order; k++) {
        double *row = A + k * stride, pivot = row[k] != 0 ? 1 / row[k] : 0;
        row[k] = 1;
        for (int b = 0; b < order; b++)
            row[b] *= pivot;
        for (int a = 0; a < order; a++) {
            double *other = A + a * stride, factor = other[k];
            if (a == k)
                continue;
            other[k] = 0;
            for (int b = 0; b < order; b++)
                other[b] -= factor * row[b];
        }
    }
}

} // namespace fbeta
