//! Reused memory for computations that run over and over on arrays of the same sizes.
//!
//! Refitting hyperparameters evaluates the evidence thousands of times, each time with a dozen arrays of
//! hundreds of kilobytes. Fetched anew from the operating system, their page faults would cost more than the
//! arithmetic.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// How many free arrays a pool keeps: more than any computation uses at once.
const KEPT: usize = 16;

/// Arrays that are free to be used again.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Vec<f64>>,
}

/// The copy is empty: free arrays hold nothing worth copying.
impl Clone for Pool {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Pool {
    /// An array of the given length. What it holds is unspecified.
    pub(crate) fn take(&mut self, len: usize) -> Vec<f64> {
        // The smallest that is large enough, else the largest, to grow.
        let fits = |v: &Vec<f64>| {
            if v.capacity() >= len { (0, v.capacity()) } else { (1, usize::MAX - v.capacity()) }
        };
        let best = (0..self.free.len()).min_by_key(|&i| fits(&self.free[i]));
        let mut array = best.map_or_else(Vec::new, |i| self.free.swap_remove(i));
        array.resize(len, 0.0);
        array
    }

    /// An array of zeros.
    pub(crate) fn zeros(&mut self, len: usize) -> Vec<f64> {
        let mut array = self.take(len);
        array.fill(0.0);
        array
    }

    /// Takes an array back. Only the largest few are kept, so that a pool does not grow.
    pub(crate) fn give(&mut self, array: Vec<f64>) {
        self.free.push(array);
        if self.free.len() > KEPT {
            let smallest = (0..self.free.len()).min_by_key(|&i| self.free[i].capacity());
            smallest.map(|i| self.free.swap_remove(i));
        }
    }
}

/// The bytes of a cache line.
const LINE: usize = 64;

/// Numbers that begin with a cache line: wide loads of padded rows then never straddle two, which would take twice as
/// long.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<f64>,
    first: usize,
    len: usize,
}

impl Aligned {
    /// An array of the given length. What it holds is unspecified.
    pub(crate) fn take(len: usize, pool: &mut Pool) -> Self {
        let room = LINE / size_of::<f64>() - 1;
        let memory = pool.take(len + room);
        let first = memory.as_ptr().align_offset(LINE).min(room);
        Self { memory, first, len }
    }

    /// An array of zeros.
    pub(crate) fn zeros(len: usize, pool: &mut Pool) -> Self {
        let mut array = Self::take(len, pool);
        array.fill(0.0);
        array
    }

    /// Gives the memory back.
    pub(crate) fn recycle(self, pool: &mut Pool) {
        pool.give(self.memory);
    }
}

impl Deref for Aligned {
    type Target = [f64];

    #[inline]
    fn deref(&self) -> &[f64] {
        &self.memory[self.first..self.first + self.len]
    }
}

impl DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.memory[self.first..self.first + self.len]
    }
}

/// The copy has a place of its own, and begins with a cache line there.
impl Clone for Aligned {
    fn clone(&self) -> Self {
        let mut copy = Self::take(self.len, &mut Pool::default());
        copy.copy_from_slice(self);
        copy
    }
}

/// Scratch memory behind a shared reference: kept between calls, and never waited for. While another thread uses it,
/// a fresh one serves.
#[derive(Debug, Default)]
pub(crate) struct Scratch<T>(Mutex<T>);

/// The copy is empty, as that of a pool.
impl<T: Default> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T: Default> Scratch<T> {
    /// Calls `f` with the memory.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.0.try_lock() {
            Ok(mut own) => f(&mut own),
            Err(_) => f(&mut T::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_kept_and_nobody_waits_for_it() {
        let scratch: Scratch<Vec<f64>> = Scratch::default();
        scratch.with(|own| own.push(1.0));
        scratch.with(|own| {
            assert_eq!(own.len(), 1);
            // While it is in use, another call gets a fresh one.
            scratch.with(|other| assert!(other.is_empty()));
        });
        assert!(scratch.clone().with(|own| own.is_empty()));
    }

    #[test]
    fn aligned_arrays_begin_with_a_cache_line_and_copies_do_too() {
        let pool = &mut Pool::default();
        for len in [0, 1, 7, 100, 5000] {
            let mut array = Aligned::zeros(len, pool);
            array.iter_mut().enumerate().for_each(|(i, v)| *v = i as f64);
            let copy = array.clone();
            assert!(copy[..] == array[..] && copy.len() == len);
            assert!([&array, &copy].iter().all(|a| a.as_ptr().addr().is_multiple_of(LINE)));
            array.recycle(pool);
        }
    }

    #[test]
    fn arrays_come_back() {
        let mut pool = Pool::default();
        let (mut small, large) = (pool.take(10), pool.take(1000));
        small.fill(7.0);
        let places = (small.as_ptr(), large.as_ptr());
        pool.give(large);
        pool.give(small);
        let again = pool.take(8);
        assert_eq!(again.as_ptr(), places.0);
        let zeros = pool.zeros(900);
        assert_eq!(zeros.as_ptr(), places.1);
        assert!(zeros.iter().all(|&v| v == 0.0) && zeros.len() == 900);
        assert_eq!(pool.take(5).len(), 5);
        (1..100).for_each(|n| pool.give(vec![0.0; n]));
        assert_eq!(pool.free.len(), KEPT);
        assert!(pool.free.iter().all(|v| v.capacity() > 99 - KEPT));
    }
}
