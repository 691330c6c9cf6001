// The jobs of the benchmark as loops over Pinocchio, so that no call from Python is timed.
//
// Pinocchio is compiled from its headers for this machine (-march=native) and for the type SCALAR.
// Its shared library is not linked, because the types of Eigen can have another alignment there. So
// this file also builds the model. The results stay in `data`, and are copied only for the check
// (out != nullptr).

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "pinocchio/algorithm/aba-derivatives.hpp"
#include "pinocchio/algorithm/aba.hpp"
#include "pinocchio/algorithm/crba.hpp"
#include "pinocchio/algorithm/frames.hpp"
#include "pinocchio/algorithm/joint-configuration.hpp"
#include "pinocchio/algorithm/kinematics.hpp"
#include "pinocchio/algorithm/rnea-derivatives.hpp"
#include "pinocchio/algorithm/rnea.hpp"
#include "pinocchio/multibody.hpp"

// The joints of the robots of the benchmark. With all joints of Pinocchio, the compilation of this
// file takes three times as long.
template <typename S, int O>
struct Joints : pinocchio::JointCollectionDefaultTpl<S, O> {
  using C = pinocchio::JointCollectionDefaultTpl<S, O>;
  typedef boost::variant<typename C::JointModelRX, typename C::JointModelRY,
                         typename C::JointModelRZ, typename C::JointModelRevoluteUnaligned,
                         typename C::JointModelPX, typename C::JointModelPY,
                         typename C::JointModelPZ, typename C::JointModelPrismaticUnaligned,
                         typename C::JointModelFreeFlyer>
      JointModelVariant;
  typedef boost::variant<typename C::JointDataRX, typename C::JointDataRY, typename C::JointDataRZ,
                         typename C::JointDataRevoluteUnaligned, typename C::JointDataPX,
                         typename C::JointDataPY, typename C::JointDataPZ,
                         typename C::JointDataPrismaticUnaligned, typename C::JointDataFreeFlyer>
      JointDataVariant;
};

using Scalar = SCALAR;
using Model = pinocchio::ModelTpl<Scalar, 0, Joints>;
using Data = pinocchio::DataTpl<Scalar, 0, Joints>;
using SE3 = Model::SE3;
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
using Rows = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Vector>;

namespace {

enum Job { FK, RNEA, CRBA, FD, JACOBIAN, DRNEA, DFD, GRAD, ROLLOUT_GRAD };

struct Robot {
  Model model;
  std::vector<std::string> names;
  Data data;
  pinocchio::FrameIndex frame = 0;
  int free = 0;  // 6 with a free-flyer, which has no motor
  // Temporary arrays, allocated once.
  Matrix J, into_q, into_v, gradient;
  Vector grad_q, grad_v, grad_a;
  std::vector<Vector> qs, vs, steps, forces;
};

struct Reader {  // reads an array of values in order
  const double *at;
  double operator()() { return *at++; }
  Eigen::Vector3d vector() {
    const double x = at[0], y = at[1], z = at[2];
    at += 3;
    return {x, y, z};
  }
  Eigen::Matrix3d matrix() {
    Eigen::Matrix3d m;
    for (int i = 0; i < 9; ++i) m(i / 3, i % 3) = *at++;
    return m;
  }
};

template <class Aligned, class X, class Y, class Z>
pinocchio::JointIndex along(Model &model, pinocchio::JointIndex parent, const SE3 &placement,
                            const Eigen::Vector3d &axis, const std::string &name) {
  if (axis == Eigen::Vector3d::UnitX()) return model.addJoint(parent, X(), placement, name);
  if (axis == Eigen::Vector3d::UnitY()) return model.addJoint(parent, Y(), placement, name);
  if (axis == Eigen::Vector3d::UnitZ()) return model.addJoint(parent, Z(), placement, name);
  return model.addJoint(parent, Aligned(axis.cast<Scalar>().normalized()), placement, name);
}

void copy(Scalar *&out, const Rows &m) {
  if (!out) return;
  std::memcpy(out, m.data(), sizeof(Scalar) * m.size());
  out += m.size();
}

Rows full(const Matrix &upper) { return upper.selfadjointView<Eigen::Upper>(); }

void rollout_gradient(Robot &r, const View &q0, const View &v0, const Scalar *taus, int steps,
                      Scalar dt) {
  // The gradient of half the square of the last velocity with respect to the motor forces: semi-
  // implicit Euler, and its adjoint by the analytic derivatives.
  Model &model = r.model;
  Data &data = r.data;
  const int motors = model.nv - r.free;
  r.qs.resize(steps + 1);
  r.vs.resize(steps + 1);
  r.steps.resize(steps);
  r.forces.resize(steps);
  r.gradient.resize(steps, motors);
  r.qs[0] = q0;
  r.vs[0] = v0;
  for (int i = 0; i < steps; ++i) {
    r.forces[i].setZero(model.nv);
    r.forces[i].tail(motors) = View(taus + i * motors, motors);
    r.vs[i + 1] = r.vs[i] + dt * pinocchio::aba(model, data, r.qs[i], r.vs[i], r.forces[i],
                                                pinocchio::Convention::WORLD);
    r.steps[i] = dt * r.vs[i + 1];
    r.qs[i + 1].resize(model.nq);
    pinocchio::integrate(model, r.qs[i], r.steps[i], r.qs[i + 1]);
  }
  Vector &lq = r.grad_q, &lv = r.grad_v, &la = r.grad_a;
  lq.setZero(model.nv);
  lv = r.vs[steps];
  for (int i = steps - 1; i >= 0; --i) {
    // The Jacobians of `integrate` are the identity, except for a free-flyer.
    if (r.free) {
      pinocchio::dIntegrate(model, r.qs[i], r.steps[i], r.into_q, pinocchio::ARG0);
      pinocchio::dIntegrate(model, r.qs[i], r.steps[i], r.into_v, pinocchio::ARG1);
      const Eigen::Matrix<Scalar, 6, 1> base = lq.template head<6>();
      lv.tail(motors) += dt * lq.tail(motors);
      lv.template head<6>() += dt * r.into_v.template topLeftCorner<6, 6>().transpose() * base;
      lq.template head<6>().noalias() =
          r.into_q.template topLeftCorner<6, 6>().transpose() * base;
    } else {
      lv += dt * lq;
    }
    la = dt * lv;
    pinocchio::computeABADerivatives(model, data, r.qs[i], r.vs[i], r.forces[i]);
    lq.noalias() += data.ddq_dq.transpose() * la;
    lv.noalias() += data.ddq_dv.transpose() * la;
    const Vector along = data.Minv.template selfadjointView<Eigen::Upper>() * la;
    r.gradient.row(i) = along.tail(motors).transpose();
  }
}

void one(Robot &r, int job, const View &q, const View &v, const Scalar *x, int steps, Scalar dt,
         Scalar *&out) {
  Model &model = r.model;
  Data &data = r.data;
  const View third(x, model.nv);
  switch (job) {
    case FK:
      pinocchio::forwardKinematics(model, data, q);
      if (out) {
        for (int i = 1; i < model.njoints; ++i) copy(out, data.oMi[i].rotation());
        for (int i = 1; i < model.njoints; ++i) copy(out, data.oMi[i].translation());
      }
      return;
    case RNEA:
      pinocchio::rnea(model, data, q, v, third);
      if (out) copy(out, data.tau);
      return;
    case CRBA:
      pinocchio::crba(model, data, q, pinocchio::Convention::LOCAL);
      if (out) copy(out, full(data.M));
      return;
    case FD:
      pinocchio::aba(model, data, q, v, third, pinocchio::Convention::WORLD);
      if (out) copy(out, data.ddq);
      return;
    case JACOBIAN:
      r.J.setZero();
      pinocchio::computeFrameJacobian(model, data, q, r.frame, pinocchio::LOCAL_WORLD_ALIGNED, r.J);
      if (out) copy(out, r.J);
      return;
    case DRNEA:
      pinocchio::computeRNEADerivatives(model, data, q, v, third);
      if (out) {
        copy(out, data.dtau_dq);
        copy(out, data.dtau_dv);
        copy(out, full(data.M));
      }
      return;
    case DFD:
      pinocchio::computeABADerivatives(model, data, q, v, third);
      if (out) {
        copy(out, data.ddq_dq);
        copy(out, data.ddq_dv);
        copy(out, full(data.Minv));
      }
      return;
    case GRAD:
      pinocchio::computeRNEADerivatives(model, data, q, v, third);
      r.grad_q.noalias() = data.dtau_dq.transpose() * data.tau;
      r.grad_v.noalias() = data.dtau_dv.transpose() * data.tau;
      r.grad_a.noalias() = data.M.template selfadjointView<Eigen::Upper>() * data.tau;
      if (out) {
        copy(out, r.grad_q);
        copy(out, r.grad_v);
        copy(out, r.grad_a);
      }
      return;
    case ROLLOUT_GRAD:
      rollout_gradient(r, q, v, x, steps, dt);
      if (out) copy(out, r.gradient);
      return;
  }
}

}  // namespace

extern "C" {

// `joints`: for each joint, its parent (-1: the world) and its kind (0 free-flyer, 1 revolute,
// 2 prismatic). `numbers`: for each joint, its axis, the rotation and the position of its placement,
// and the mass, the centre of mass and the inertia about it of its link. `frame`: the joint of the
// job "jacobian".
void *create(int n, const int *joints, const double *numbers, int frame) {
  auto *r = new Robot;
  Reader read{numbers};
  r->model.gravity.linear() << Scalar(0), Scalar(0), Scalar(-9.81);
  for (int i = 0; i < n; ++i) {
    const pinocchio::JointIndex parent = joints[2 * i] + 1;
    const Eigen::Vector3d axis = read.vector();
    const Eigen::Matrix3d R = read.matrix();
    const Eigen::Vector3d p = read.vector();
    const SE3 placement(R.cast<Scalar>(), p.cast<Scalar>());
    const std::string name = "j" + std::to_string(i);
    pinocchio::JointIndex joint;
    using C = Joints<Scalar, 0>;
    switch (joints[2 * i + 1]) {
      case 0:
        joint = r->model.addJoint(parent, typename C::JointModelFreeFlyer(), placement, name);
        r->free = 6;
        break;
      case 1:
        joint = along<typename C::JointModelRevoluteUnaligned, typename C::JointModelRX,
                      typename C::JointModelRY, typename C::JointModelRZ>(r->model, parent,
                                                                          placement, axis, name);
        break;
      default:
        joint = along<typename C::JointModelPrismaticUnaligned, typename C::JointModelPX,
                      typename C::JointModelPY, typename C::JointModelPZ>(r->model, parent,
                                                                          placement, axis, name);
    }
    const Scalar mass = Scalar(read());
    const Eigen::Vector3d com = read.vector();
    const Eigen::Matrix3d inertia = read.matrix();
    r->model.appendBodyToJoint(
        joint, Model::Inertia(mass, com.cast<Scalar>(), inertia.cast<Scalar>()), SE3::Identity());
  }
  r->frame = r->model.addBodyFrame("tip", frame + 1, SE3::Identity(), 0);
  r->data = Data(r->model);
  const int nv = r->model.nv;
  r->J.setZero(6, nv);
  r->into_q.setZero(nv, nv);
  r->into_v.setZero(nv, nv);
  for (Vector *x : {&r->grad_q, &r->grad_v, &r->grad_a}) x->setZero(nv);
  return r;
}

// Runs a job `repeats` times for a batch. Writes the time of each run into `seconds`, and the results
// of the samples into `out`, unless it is null. `x` has `x_width` values per sample.
void run(void *handle, int job, int batch, const void *q, const void *v, const void *x, int x_width,
         int steps, double dt, int repeats, double *seconds, void *out) {
  auto &r = *static_cast<Robot *>(handle);
  const int nq = r.model.nq, nv = r.model.nv;
  for (int k = 0; k < repeats; ++k) {
    Scalar *to = static_cast<Scalar *>(out);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i)
      one(r, job, View(static_cast<const Scalar *>(q) + i * nq, nq),
          View(static_cast<const Scalar *>(v) + i * nv, nv),
          static_cast<const Scalar *>(x) + i * x_width, steps, Scalar(dt), to);
    const auto end = std::chrono::steady_clock::now();
    seconds[k] = std::chrono::duration<double>(end - start).count();
  }
}

}  // extern "C"
