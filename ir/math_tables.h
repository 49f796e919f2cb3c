// Constants of the elementary functions: the layout of the two float formats, irrational numbers in
// several parts whose sum is exact enough, and minimax polynomials (Sollya's fpminimax; the
// interval and the relative error of the whole approximation stand with each). Coefficients run
// from the lowest power up.
#pragma once

#include <array>
#include <cstdint>

namespace lazuli::math {

/// pi as parts that each fill a significand, highest first; likewise the others.
struct Parts3 {
  double high, middle, low;
};
struct Parts2 {
  double high, low;
};

template <typename S>
struct Table;

template <>
struct Table<float> {
  using Int = int32_t;
  using Uint = uint32_t;
  static constexpr int kMantissa = 23, kBias = 127;
  static constexpr double kMinNormal = 0x1p-126;
  /// Adding and subtracting this rounds to an integer, which then stands in the low bits of the
  /// sum.
  static constexpr double kRound = 0x1.8p23;
  static constexpr Uint kTwoThirds = 0x3f2aaaab;  // bits of 2/3: mantissas are taken in [2/3, 4/3)

  static constexpr Parts2 kLn2{0x1.62e43p-1, -0x1.05c61p-29};
  static constexpr Parts2 kLog2e{0x1.715476p0, 0x1.4ae0cp-26};
  static constexpr Parts2 kLog10e{0x1.bcb7b2p-2, -0x1.5b235ep-27};
  static constexpr Parts2 kLog10Of2{0x1.344136p-2, -0x1.ec10cp-27};
  static constexpr Parts3 kPi{0x1.921fb6p1, -0x1.777a5cp-24, -0x1.ee59dap-49};
  static constexpr double kInversePi = 0x1.45f306p-2;

  // Clamps that keep 2^n representable in two steps and change no result. The low ones are far
  // below the least denormal: CPUs take some 90 cycles for what rounds to zero from nearby.
  static constexpr double kExpLow = -120, kExpHigh = 89, kExp2Low = -174, kExp2High = 128.5;
  static constexpr double kExpm1Low = -18, kTanhHigh = 9.1, kSinhHigh = 89.5;
  static constexpr double kSigmoidHigh = 18;      // the sigmoid rounds to 1 above
  static constexpr double kTiny = 0x1p-25;        // log1p(x) and expm1(x) are x below
  static constexpr double kTinyCube = 0x1p-13;    // sinh(x) is x below
  static constexpr double kSquareLarge = 0x1p24;  // sqrt(x^2 +- 1) is x above
  static constexpr double kTrigLarge = 1e5;       // three parts of pi are no longer enough above
  static constexpr double kPowHigh = 256;         // |y log2 x| above over- or underflows

  // (e^r - 1) / r - 1 over r, |r| <= 0.3475: 2^-26.1
  static constexpr std::array kExp{0x1p-1, 0x1.5554aep-3, 0x1.5554ep-5, 0x1.122936p-7,
                                   0x1.6d56c8p-10};
  // The same for |r| <= log(2)/16: 2^-25.2 of e^r, 2^-19.9 of e^r - 1
  static constexpr std::array kExpOfEighth{0x1.000886p-1, 0x1.555a94p-3};
  // (log(1 + f) - f + f^2/2) / f^3, |f| <= 1/3: 2^-27.6
  static constexpr std::array kLog{0x1.55550cp-2, -0x1.fffe5ep-3, 0x1.99ce36p-3, -0x1.55b7fp-3,
                                   0x1.1ef236p-3, -0x1.f03b2ap-4, 0x1.1df0c2p-3, -0x1.0e2cbp-3};
  // (atanh(s)/s - 1 - z/3) / z^2, z = s^2 <= 0.0401: 2^-34.5
  static constexpr std::array kPowLog{0x1.999aap-3, 0x1.241a32p-3, 0x1.e8eb6p-4};
  static constexpr Parts2 kThird{0x1.555556p-2, -0x1.555556p-27};
  // (sin(r)/r - 1) / z, z = r^2 <= 0.64: 2^-27.8; (cos(r) - 1 + z/2) / z^2: 2^-32.7
  static constexpr std::array kSin{-0x1.555544p-3, 0x1.1106aep-7, -0x1.990f92p-13};
  static constexpr std::array kCos{0x1.555548p-5, -0x1.6c0b08p-10, 0x1.999a6cp-16};
  // (asin(s)/s - 1) / z, z = s^2 <= 0.25: 2^-27.5
  static constexpr std::array kAsin{0x1.5555c8p-3, 0x1.330206p-4, 0x1.747b72p-5, 0x1.8c415ap-6,
                                    0x1.5959aap-5};
  // (atan(t)/t - 1) / z, z = t^2 <= 1: 2^-28.5
  static constexpr std::array kAtan{-0x1.55553ep-2, 0x1.9991ecp-3,  -0x1.24211ap-3,
                                    0x1.c0946cp-4,  -0x1.5825f2p-4, 0x1.da9c2ep-5,
                                    -0x1.fe7d24p-6, 0x1.6551e2p-7,  -0x1.d5a1aap-10};
  // erf(x)/x - 1 over z = x^2, x <= 1.2: 2^-26.0
  static constexpr std::array kErf{0x1.06eba6p-3, -0x1.8127p-2,    0x1.ce232p-4,  -0x1.b76688p-6,
                                   0x1.50288cp-8, -0x1.8bce88p-11, 0x1.10710ap-14};
  // erfc(a) e^(a^2) (a + k) over (a - k) / (a + k), 0.49 <= a <= 10.1: 2^-25.8; zero beyond
  static constexpr double kErfcCentre = 2, kErfcHigh = 10.9;
  static constexpr std::array kErfc{0x1.058672p0,   -0x1.5fd386p-1,  0x1.1e2d9ep-2,
                                    -0x1.2a883ep-5, -0x1.60254ep-6,  0x1.a82718p-8,
                                    0x1.892758p-9,  -0x1.a5a4a4p-11, -0x1.ecfedap-12};
  // erfc(a)^(1/8), 1.15 <= a <= 3.92; the error of erf is 2^-27.4. More than 1 at 0.
  static constexpr double kErfOne = 3.92, kErfMiddle = 0x1.cdd3p-1;  // erf(1.17)
  static constexpr std::array kErfcRoot{0x1.004f7p+0,   -0x1.2bea9ep-3, -0x1.e638ap-5,
                                        -0x1.a9f6f4p-7, 0x1.be96e2p-7,  -0x1.5885c4p-9,
                                        0x1.58ed6cp-13};
};

template <>
struct Table<double> {
  using Int = int64_t;
  using Uint = uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023;
  static constexpr double kMinNormal = 0x1p-1022;
  static constexpr double kRound = 0x1.8p52;
  static constexpr Uint kTwoThirds = 0x3fe5555555555555;

  static constexpr Parts2 kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
  static constexpr Parts2 kLog2e{0x1.71547652b82fep0, 0x1.777d0ffda0d24p-56};
  static constexpr Parts2 kLog10e{0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57};
  static constexpr Parts2 kLog10Of2{0x1.34413509f79ffp-2, -0x1.9dc1da994fd21p-59};
  static constexpr Parts3 kPi{0x1.921fb54442d18p1, 0x1.1a62633145c07p-53, -0x1.f1976b7ed8fbcp-109};
  static constexpr double kInversePi = 0x1.45f306dc9c883p-2;

  static constexpr double kExpLow = -766, kExpHigh = 710, kExp2Low = -1106, kExp2High = 1024.5;
  static constexpr double kExpm1Low = -40, kTanhHigh = 20, kSinhHigh = 710.6;
  static constexpr double kSigmoidHigh = 38;
  static constexpr double kTiny = 0x1p-54, kTinyCube = 0x1p-28, kSquareLarge = 0x1p53;
  static constexpr double kTrigLarge = 1e9, kPowHigh = 2048;

  // |r| <= 0.3475: 2^-61.7
  static constexpr std::array kExp{0x1p-1,
                                   0x1.5555555555559p-3,
                                   0x1.5555555555558p-5,
                                   0x1.111111110f627p-7,
                                   0x1.6c16c16c14f3fp-10,
                                   0x1.a01a01b022722p-13,
                                   0x1.a01a01adebad6p-16,
                                   0x1.71ddf7a849c95p-19,
                                   0x1.27e4cad49bfe7p-22,
                                   0x1.af600479b3695p-26,
                                   0x1.1f8e2b2b7d092p-29};
  // (2 atanh(s)/s - 2) / z, z = s^2 <= 0.0401: 2^-61.6
  static constexpr std::array kLog{0x1.555555555554fp-1, 0x1.999999999c17cp-2, 0x1.24924921e40f7p-2,
                                   0x1.c71c74900282dp-3, 0x1.745c4ac9320c3p-3, 0x1.3b35c37e48be7p-3,
                                   0x1.0dcb62a6ed24fp-3, 0x1.1b831273fe30dp-3};
  // 2^-75.6
  static constexpr std::array kPowLog{
      0x1.999999999999ap-3, 0x1.2492492492358p-3, 0x1.c71c71c747ff9p-4,
      0x1.745d172d45de5p-4, 0x1.3b13b9437dd39p-4, 0x1.110f72f7ba118p-4,
      0x1.e249e2f8b7db1p-5, 0x1.a73f80c94d6e6p-5, 0x1.da75ab3ff86fap-5};
  static constexpr Parts2 kThird{0x1.5555555555555p-2, 0x1.5555555555555p-56};
  // 2^-62.8 and 2^-63.6
  static constexpr std::array kSin{
      -0x1.5555555555555p-3,  0x1.111111111108fp-7,  -0x1.a01a01a007f31p-13, 0x1.71de3a41d9f97p-19,
      -0x1.ae643fd562546p-26, 0x1.61166a89c3b1cp-33, -0x1.a64997b3f6b5ap-41};
  static constexpr std::array kCos{0x1.5555555555548p-5,  -0x1.6c16c16c149a9p-10,
                                   0x1.a01a019befa6bp-16, -0x1.27e4f77ebfeacp-22,
                                   0x1.1ee98deec25efp-29, -0x1.8f7e4238c5e77p-37};
  // 2^-59.8
  static constexpr std::array kAsin{
      0x1.5555555555577p-3, 0x1.333333332e133p-4, 0x1.6db6db721247bp-5, 0x1.f1c71a95002fbp-6,
      0x1.6e8bdedebf9dfp-6, 0x1.1c49f077d5bc7p-6, 0x1.ca1f8af1f0a39p-7, 0x1.75859dad05d99p-7,
      0x1.613c1e6ed7255p-7, 0x1.e5fbe88dfe589p-9, 0x1.639a894e21512p-6, -0x1.57fad0dea9e5bp-6,
      0x1.0b45e9f72ded5p-5};
  // 2^-57.6
  static constexpr std::array kAtan{
      -0x1.5555555555526p-2, 0x1.99999999955b4p-3,  -0x1.249249237f57dp-3,  0x1.c71c717fcf76dp-4,
      -0x1.745d11ae74c7ap-4, 0x1.3b13669a2a047p-4,  -0x1.110e5126fd02dp-4,  0x1.e1bba66c1a4b8p-5,
      -0x1.ae5e72c0e6984p-5, 0x1.82dad79d1736p-5,   -0x1.59a3ff2ac6667p-5,  0x1.2c2e5ccfd4e26p-5,
      -0x1.e9fa0da6643e9p-6, 0x1.683cc98472e13p-6,  -0x1.c78fcd542af16p-7,  0x1.d7b927bbdceedp-8,
      -0x1.7a399ad4364a2p-9, 0x1.b3facbcd7bb8ap-11, -0x1.3f364d4b9695cp-13, 0x1.bbed9f7b04237p-17};
  // (tanh(a)/a - 1) / z, z = a^2, a <= 0.55: 2^-60.6
  static constexpr double kTanhNear = 0.55;
  static constexpr std::array kTanh{
      -0x1.555555555554fp-2,  0x1.1111111110794p-3,  -0x1.ba1ba1b97d0ep-5,   0x1.664f4859598d1p-6,
      -0x1.226e2f11e98b2p-7,  0x1.d6d29b3a9be7ap-9,  -0x1.7d8fcf79b2538p-10, 0x1.34838ed8de4c4p-11,
      -0x1.e96e9aaa7287cp-13, 0x1.5d71385dd179bp-14, -0x1.4709c2bcd55b6p-16};
  // x <= 0.85: 2^-56.0
  static constexpr double kErfSmall = 0.84;
  static constexpr std::array kErf{
      0x1.06eba8214db68p-3,  -0x1.812746b037999p-2,  0x1.ce2f21a03eacep-4,  -0x1.b82ce3112d356p-6,
      0x1.565bccd27565ap-8,  -0x1.c02da7e07c6cep-11, 0x1.f9a19e410c52ap-14, -0x1.f4b24f8f137eep-17,
      0x1.b835da6aaef14p-20, -0x1.5117fdd0274a5p-23, 0x1.6ed3121d2edbcp-27};
  // 0.79 <= a <= 27.3: 2^-55.7
  static constexpr double kErfcCentre = 2, kErfcHigh = 27.7;
  static constexpr std::array kErfc{
      0x1.058671b52c776p0,    -0x1.5fd386754eff9p-1,  0x1.1e2deea6b112ep-2,
      -0x1.2a88e6107cf5cp-5,  -0x1.606e415518795p-6,  0x1.a89eaff758c91p-8,
      0x1.9517bb62a932ap-9,   -0x1.b6fbf8667837ep-11, -0x1.5ba4362450acdp-11,
      0x1.2052c0cee9bcp-15,   0x1.2efa3b0affc1cp-13,  0x1.1e8266656383ap-15,
      -0x1.6c23ec5eca642p-16, -0x1.0ee1072eb99edp-16, -0x1.1bb77f29c50fdp-20,
      0x1.ebc146f2b7182p-19,  0x1.d9a0cae916f36p-20,  0x1.bc12a15886865p-23,
      -0x1.5bbadca776c5ap-22, -0x1.d484aca70988ap-21, 0x1.115f9cf82e68p-22,
      0x1.10f1b36a1173ap-22,  -0x1.b0667848a7e8fp-24};
};

/// The first 1280 bits of 1/pi after the point, for the reduction of huge angles.
inline constexpr std::array<uint64_t, 20> kInversePiBits{
    0x517cc1b727220a94, 0xfe13abe8fa9a6ee0, 0x6db14acc9e21c820, 0xff28b1d5ef5de2b0,
    0xdb92371d2126e970, 0x0324977504e8c90e, 0x7f0ef58e5894d39f, 0x74411afa975da242,
    0x74ce38135a2fbf20, 0x9cc8eb1cc1a99cfa, 0x4e422fc5defc941d, 0x8ffc4bffef02cc07,
    0xf79788c5ad05368f, 0xb69b3f6793e584db, 0xa7a31fb34f2ff516, 0xba93dd63f5f2f8bd,
    0x9e839cfbc5294975, 0x35fdafd88fc6ae84, 0x2b0198237e3db5d5, 0xf867de104d7a1b0e};

}  // namespace lazuli::math
