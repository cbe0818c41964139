// Calls a matrix product that Loopwright made. With matmul.so here, exported from Python by
//
//     import loopwright as lw
//     i, j, k = lw.indices("i j k")
//     A, W = lw.tensor("A", (24, 12)), lw.tensor("W", (12, 16), constant=True)
//     C = lw.tensor("C")
//     C[i, j] += A[i, k] * W[k, j]
//     lw.build(lw.workload(C)).export("matmul.so")
//
// compile and run it:
//
//     rustc main.rs -C link-args="./matmul.so -Wl,-rpath,$PWD" && ./main
use std::ffi::{c_char, c_int, CStr};

const M: usize = 24;
const N: usize = 16;
const K: usize = 12;

// As matmul.h declares them.
extern "C" {
    fn matmul(a: *const f32, w: *const f32, c: *mut f32) -> c_int;
    fn matmul_set_threads(threads: c_int) -> c_int;
    fn matmul_error(status: c_int) -> *const c_char;
}

fn checked(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // The text lives as long as the library.
    let words = unsafe { CStr::from_ptr(matmul_error(status)) };
    Err(words.to_string_lossy().into_owned())
}

/// C = A W. The types say the shapes, and Rust that C overlaps nothing.
fn product(a: &[[f32; K]; M], w: &[[f32; N]; K], c: &mut [[f32; N]; M]) -> Result<(), String> {
    checked(unsafe { matmul(a.as_ptr().cast(), w.as_ptr().cast(), c.as_mut_ptr().cast()) })
}

fn main() -> Result<(), String> {
    let a = [[1.0; K]; M];
    let w = [[2.0; N]; K];
    let mut c = [[0.0; N]; M];
    checked(unsafe { matmul_set_threads(2) })?;
    product(&a, &w, &mut c)?;
    assert!(c.iter().flatten().all(|&x| x == 24.0));
    println!("{}", c[0][0]);

    // A mistake is a status with a text.
    let missing = checked(unsafe { matmul(std::ptr::null(), w.as_ptr().cast(), c.as_mut_ptr().cast()) });
    println!("{}", missing.unwrap_err());
    Ok(())
}
