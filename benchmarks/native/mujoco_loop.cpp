// The jobs of the benchmark as loops over MuJoCo, so that no call from Python is timed.
//
// Each job calls only the stages of MuJoCo's pipeline that it needs. The results stay in mjData, and
// are copied only for the check (out != nullptr). The sparse matrices of MuJoCo are converted to full
// matrices only for the check, too.

#include <mujoco/mujoco.h>

#include <chrono>
#include <cstring>
#include <vector>

namespace {

enum Job { FK, RNEA, CRBA, FD, JACOBIAN, DRNEA, DFD, GRAD, ROLLOUT_GRAD };

struct Robot {
  mjModel *m;
  mjData *d;
  int frame;
  std::vector<double> result, smooth, J, dq, dv, da, full;
};

void copy(double *&out, const double *x, size_t n) {
  std::memcpy(out, x, n * sizeof(double));
  out += n;
}

void transposed(double *&out, const double *x, int n) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) *out++ = x[j * n + i];
}

void one(Robot &r, int job, const double *q, const double *v, const double *x, double *&out) {
  mjModel *m = r.m;
  mjData *d = r.d;
  const int nv = m->nv;
  std::memcpy(d->qpos, q, m->nq * sizeof(double));
  switch (job) {
    case FK:
      mj_kinematics(m, d);
      if (out) {
        copy(out, d->xmat + 9, 9 * (m->nbody - 1));
        copy(out, d->xpos + 3, 3 * (m->nbody - 1));
      }
      return;
    case RNEA:
      std::memcpy(d->qvel, v, nv * sizeof(double));
      std::memcpy(d->qacc, x, nv * sizeof(double));
      mj_kinematics(m, d);
      mj_comPos(m, d);
      mj_comVel(m, d);
      mj_rne(m, d, 1, r.result.data());
      if (out) copy(out, r.result.data(), nv);
      return;
    case CRBA:
      mj_kinematics(m, d);
      mj_comPos(m, d);
      mj_makeM(m, d);
      if (out) {
        mj_fullM(m, d, r.full.data());
        copy(out, r.full.data(), nv * nv);
      }
      return;
    case FD:
      std::memcpy(d->qvel, v, nv * sizeof(double));
      mj_kinematics(m, d);
      mj_comPos(m, d);
      mj_makeM(m, d);
      mj_factorM(m, d);
      mj_comVel(m, d);
      mj_rne(m, d, 0, r.result.data());
      for (int i = 0; i < nv; ++i) r.smooth[i] = x[i] - r.result[i];
      mj_solveM(m, d, r.result.data(), r.smooth.data(), 1);
      if (out) copy(out, r.result.data(), nv);
      return;
    case JACOBIAN:
      mj_kinematics(m, d);
      mj_comPos(m, d);
      mj_jacBody(m, d, r.J.data(), r.J.data() + 3 * nv, r.frame + 1);
      if (out) copy(out, r.J.data(), 6 * nv);
      return;
    case DRNEA:
      std::memcpy(d->qvel, v, nv * sizeof(double));
      std::memcpy(d->qacc, x, nv * sizeof(double));
      mjd_inverseFD(m, d, 1e-6, 0, r.dq.data(), r.dv.data(), r.da.data(), nullptr, nullptr, nullptr,
                    nullptr);
      if (out) {  // MuJoCo has one row per variable, and the benchmark one row per force
        transposed(out, r.dq.data(), nv);
        transposed(out, r.dv.data(), nv);
        transposed(out, r.da.data(), nv);
      }
      return;
  }
}

}  // namespace

extern "C" {

void *create(const char *mjcf, int frame, char *error, int error_size) {
  mjModel *m = mj_loadXML(mjcf, nullptr, error, error_size);
  if (!m) return nullptr;
  const size_t nv = m->nv;
  auto *r = new Robot{m, mj_makeData(m), frame};
  for (auto *x : {&r->result, &r->smooth}) x->resize(nv);
  for (auto *x : {&r->dq, &r->dv, &r->da, &r->full}) x->resize(nv * nv);
  r->J.resize(6 * nv);
  return r;
}

// As in pinocchio_loop.cpp.
void run(void *handle, int job, int batch, const double *q, const double *v, const double *x,
         int x_width, int steps, double dt, int repeats, double *seconds, double *out) {
  auto &r = *static_cast<Robot *>(handle);
  for (int k = 0; k < repeats; ++k) {
    double *to = out;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i)
      one(r, job, q + i * r.m->nq, v + i * r.m->nv, x + i * x_width, to);
    const auto end = std::chrono::steady_clock::now();
    seconds[k] = std::chrono::duration<double>(end - start).count();
  }
}

}  // extern "C"
