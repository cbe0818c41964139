#ifndef LOOPWRIGHT_VIEW_HPP_
#define LOOPWRIGHT_VIEW_HPP_

#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace loopwright_base {

// A call failed: `what()` says why, `status()` is what C gives.
class error : public std::runtime_error {
 public:
  error(int status, const char *words) : std::runtime_error(words), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

// An array has another shape than the library was built for.
class shape_error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// A dense array in C order that others own, with its shape.
template <class T, std::size_t Rank>
class view {
 public:
  using shape_type = std::array<std::size_t, Rank>;

  view(T *data, shape_type shape) : data_(data), shape_(shape) {}

  // A vector, an array, a span: what has data() and size(), which must fit the shape.
  template <class Container,
            class = decltype(static_cast<T *>(std::data(std::declval<Container &>())))>
  view(Container &&values, shape_type shape) : data_(std::data(values)), shape_(shape) {
    if (std::size(values) != size())
      throw shape_error(std::to_string(std::size(values)) + " elements are no array of shape " +
                        text(shape));
  }

  // Views of what may change serve where nothing is written.
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  view(view<U, Rank> other) : data_(other.data()), shape_(other.shape()) {}

  T *data() const noexcept { return data_; }
  const shape_type &shape() const noexcept { return shape_; }

  std::size_t size() const noexcept {
    std::size_t total = 1;
    for (std::size_t extent : shape_) total *= extent;
    return total;
  }

  void check(const char *name, shape_type wanted) const {
    if (shape_ != wanted)
      throw shape_error(std::string(name) + " has shape " + text(shape_) + ", and must have " +
                        text(wanted));
  }

 private:
  static std::string text(const shape_type &shape) {
    std::string listed;
    for (std::size_t extent : shape) listed += (listed.empty() ? "" : ", ") + std::to_string(extent);
    return "[" + listed + "]";
  }

  T *data_;
  shape_type shape_;
};

struct released {
  void operator()(std::byte *block) const { ::operator delete(block, std::align_val_t{64}); }
};
using block = std::unique_ptr<std::byte, released>;

inline block allocate(std::size_t bytes) {
  return block(static_cast<std::byte *>(::operator new(bytes, std::align_val_t{64})));
}

}  // namespace loopwright_base

#endif
