// The iterator of fm::vector: random access, with the barrier hoisted out of the chunk. It keeps the chunk that it
// stands in pinned, so that stepping and reading within one is a pointer bump and a compare; a chunk is pinned when an
// element in it is first read. Elements come out by value (references as handles), so nothing that it gives dangles.
//
// Invariant: when a chunk is pinned, at_ is the element with number index_, or one past the chunk's last one.
// Valid while the vector lives and does not change its size.
#pragma once

#include <farmem/containers/chunks.h>
#include <iterator>

namespace fm {

template <class T>
class vector_iterator {
  using place = detail::chunks<T>;
  using element = detail::element<T>;

 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = typename element::value;
  using difference_type = std::ptrdiff_t;
  using reference = value_type;
  /// What -> gives: a copy of the element that lives for the expression.
  class pointer {
   public:
    explicit pointer(value_type v) : value_(std::move(v)) {}
    const value_type* operator->() const noexcept { return &value_; }

   private:
    value_type value_;
  };

  vector_iterator() noexcept = default;
  vector_iterator(detail::slot_t vector, std::uint64_t index) noexcept : vector_(vector), index_(index) {}
  vector_iterator(const vector_iterator& o) noexcept
      : vector_(o.vector_), index_(o.index_), at_(o.at_), begin_(o.begin_), end_(o.end_), pinned_(o.pinned_) {
    if (pinned_) detail::pin_frame(pinned_);  // pinned already, so it stays where it is
  }
  vector_iterator(vector_iterator&& o) noexcept
      : vector_(o.vector_), index_(o.index_), at_(o.at_), begin_(o.begin_), end_(o.end_), pinned_(o.pinned_) {
    o.forget();
  }
  vector_iterator& operator=(vector_iterator o) noexcept {
    std::swap(vector_, o.vector_);
    std::swap(index_, o.index_);
    std::swap(at_, o.at_);
    std::swap(begin_, o.begin_);
    std::swap(end_, o.end_);
    std::swap(pinned_, o.pinned_);
    return *this;
  }
  ~vector_iterator() {
    if (pinned_) detail::unpin_frame(pinned_);
  }

  /// The element, by value. Throws out_of_range past the end, and as fm::ptr's ->.
  reference operator*() const {
    if (__builtin_expect(at_ == end_, 0)) load();
    return element::load(*at_);
  }
  pointer operator->() const { return pointer(**this); }
  reference operator[](difference_type n) const { return *(*this + n); }

  vector_iterator& operator++() noexcept {
    ++index_;
    if (at_ != end_)
      ++at_;
    else
      unload();
    return *this;
  }
  vector_iterator& operator--() noexcept {
    --index_;
    if (at_ != begin_)
      --at_;
    else
      unload();
    return *this;
  }
  vector_iterator operator++(int) noexcept {
    vector_iterator old(*this);
    ++*this;
    return old;
  }
  vector_iterator operator--(int) noexcept {
    vector_iterator old(*this);
    --*this;
    return old;
  }
  vector_iterator& operator+=(difference_type n) noexcept {
    index_ += static_cast<std::uint64_t>(n);
    if (n >= begin_ - at_ && n <= end_ - at_)
      at_ += n;
    else
      unload();
    return *this;
  }
  vector_iterator& operator-=(difference_type n) noexcept { return *this += -n; }
  friend vector_iterator operator+(vector_iterator i, difference_type n) noexcept { return std::move(i += n); }
  friend vector_iterator operator+(difference_type n, vector_iterator i) noexcept { return std::move(i += n); }
  friend vector_iterator operator-(vector_iterator i, difference_type n) noexcept { return std::move(i -= n); }
  friend difference_type operator-(const vector_iterator& a, const vector_iterator& b) noexcept {
    return static_cast<difference_type>(a.index_ - b.index_);
  }
  friend bool operator==(const vector_iterator& a, const vector_iterator& b) noexcept { return a.index_ == b.index_; }
  friend auto operator<=>(const vector_iterator& a, const vector_iterator& b) noexcept { return a.index_ <=> b.index_; }

 private:
  void forget() const noexcept {
    at_ = begin_ = end_ = nullptr;
    pinned_ = nullptr;
  }
  void unload() const noexcept {
    if (pinned_) detail::unpin_frame(pinned_);
    forget();
  }
  [[gnu::noinline]] void load() const {
    unload();
    const detail::user_section in_section;
    const detail::slot_t chunk = place::locate(vector_, index_);
    const auto* c = detail::object_at<typename place::chunk>(chunk);
    pinned_ = reinterpret_cast<char*>(const_cast<typename place::chunk*>(c));
    detail::pin_frame(pinned_);
    begin_ = c->begin();
    end_ = c->end();
    at_ = begin_ + place::within(index_);
  }

  detail::slot_t vector_ = 0;
  std::uint64_t index_ = 0;
  // Reading an element may pin the chunk that it is in, which does not change what the iterator names.
  mutable const T* at_ = nullptr;
  mutable const T* begin_ = nullptr;
  mutable const T* end_ = nullptr;
  mutable char* pinned_ = nullptr;
};

}  // namespace fm
