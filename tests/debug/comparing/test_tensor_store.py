"A store gives back what was put there, within its budget."
import threading

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.few_bits import equal_bits, sample_of
from hooklab.debug.comparing.tensor_store import TensorStore, largest_sample

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
          torch.float8_e4m3fnuz, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16,
          torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128, torch.complex32]


def random(dtype, *shape):
    "Any bits, so also NaN of all kinds."
    if dtype == torch.bool: return torch.rand(shape) > .5
    return torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype).reshape(shape)


def bits(t): return t.contiguous().view(torch.uint8) if t.dim() else t.reshape(1).view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_each_dtype_comes_back_bit_for_bit(dtype):
    store = TensorStore()
    for t in random(dtype, 3, 5), random(dtype), random(dtype, 0, 4), random(dtype, 4, 3).T, random(dtype, 9)[1::3]:
        back = store.get(store.put(t))
        assert back.dtype == dtype and back.stride() == t.clone().stride() and torch.equal(bits(back), bits(t))


def test_what_comes_back_is_without_history():
    x, store = torch.ones(3, requires_grad=True), TensorStore()
    for t in x, x*2, nn.Parameter(x.detach()):
        back = store.get(store.put(t))
        assert type(back) is torch.Tensor and not back.requires_grad and torch.equal(back, t)


@pytest.mark.parametrize("sample", [float("inf"), 3])
def test_inference_mode(sample):
    store = TensorStore(sample=sample)
    with torch.inference_mode():
        t = torch.ones(5)
        numbers = [store.put(t)]
        t.add_(1)
        numbers.append(store.put(t))  # torch has not counted the change
    assert [store.some(number)[0].item() for number in numbers] == [1, 2]
    assert not any(store.some(number).is_inference() for number in numbers)


@pytest.mark.parametrize("sample", [float("inf"), 500])
def test_a_tensor_that_has_not_changed_is_kept_once(sample):
    t, store = torch.ones(1000), TensorStore(sample=sample)
    assert store.put(t) == store.put(t) != store.put(t.clone()) and len(store.stored) == 2
    first = store.put(t)
    t.mul_(2)
    second = store.put(t)
    t[0] = 7
    third = store.put(t)
    assert [store.some(number)[0].item() for number in (first, second, third)] == [1, 2, 7]


@pytest.mark.parametrize("change", [
    lambda t: t[1:].zero_(), lambda t: t.detach().zero_(), lambda t: nn.functional.relu_(t),
    lambda t: torch.neg(t, out=t), lambda t: setattr(t, "data", torch.zeros(4)), lambda t: t.data.zero_()])
@pytest.mark.parametrize("sample", [float("inf"), 3])
def test_a_change_by_another_name_is_seen(change, sample):
    t, store = torch.tensor([-1., -2., -3., -4.]), TensorStore(sample=sample)
    before = store.put(t)
    old = store.some(before).clone()
    change(t)
    assert store.some(store.put(t))[-1] == t[-1] and torch.equal(store.some(before), old)


def test_the_number_of_a_freed_tensor_is_not_taken_for_another():
    store = TensorStore()
    numbers = [store.put(torch.full((3,), float(i))) for i in range(200)]  # each has the id of the one before
    assert [store.get(number)[0].item() for number in numbers] == [*range(200)]


STRIDED = {
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1), "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "with gaps": lambda: torch.randn(4, 6)[::2, 1:4], "overlapping": lambda: torch.randn(9).unfold(0, 4, 2),
    "conjugate": lambda: torch.randn(3, 2, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(3, 2, dtype=torch.complex64).conj().imag,
    "flipped": lambda: torch.randn(3, 4).flip(0), "scalar": lambda: torch.tensor(3.)}


@pytest.mark.parametrize("shape", STRIDED)
def test_any_strides(shape):
    t, store, small = STRIDED[shape](), TensorStore(), TensorStore(sample=3)
    back = store.get(store.put(t))
    assert torch.equal(back, t) and back.stride() == t.clone().stride()
    number = small.put(t)
    kept = t.reshape(-1)[[i*(t.numel() - 1)//2 for i in range(3)]] if t.numel() > 3 else t.reshape(-1)
    assert torch.equal(small.some(number), kept)


def test_inside_vmap_the_whole_batch_is_kept():
    store, numbers = TensorStore(), []
    torch.vmap(lambda row: (numbers.append(store.put(row)), row)[1])(torch.arange(6.).reshape(2, 3))
    assert torch.equal(store.get(numbers[0]), torch.arange(6.).reshape(2, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("sample", [float("inf"), 4])
def test_on_a_gpu(sample):
    tensors = [torch.randn(8, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last),
               torch.randn(5, device="cuda").bfloat16(), torch.randn(5), torch.tensor(1, device="cuda")]
    store, on_cpu = TensorStore(sample=sample), TensorStore(sample=sample)
    for t in tensors:
        number, same = store.put(t), on_cpu.put(t.cpu())
        assert store.get(number).device == store.some(number).device == t.device
        assert torch.equal(store.some(number).cpu(), on_cpu.some(same))


# Within the budget

def test_nothing_is_kept_beyond_the_budget_but_forms():
    store = TensorStore(budget=10_000)
    given = store.put(torch.zeros(5000), whole=True)
    for i in range(50):
        store.put(torch.full((250 + i,), float(i)))
        held = [one.numbers for number, one in store.stored.items() if number != given]
        assert sum(t.nbytes for t in held if t is not None) <= 10_000
    assert store.is_full and store.n_kept(given) is None and store.get(given).sum() == 0
    assert [one.size for one in store.stored.values()][1:] == [(250 + i, 4, 4*(250 + i)) for i in range(50)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_sample_is_evenly_spaced(dtype):
    t, store = random(dtype, 20, 7), TensorStore(sample=12)
    number = store.put(t)
    assert store.n_kept(number) == 12 and store.get(number).shape == t.shape and store.get(number).dtype == dtype
    flat = t.reshape(-1)
    assert torch.equal(bits(store.some(number)), bits(flat[[i*139//11 for i in range(12)]]))
    small = store.put(flat[:12])
    assert store.n_kept(small) is None and torch.equal(bits(store.get(small)), bits(flat[:12]))


def test_what_pairing_compares_is_taken_from_all_numbers():
    t, store = torch.randn(1000), TensorStore(sample=100)
    one = store.stored[store.put(t)]
    assert abs(one.sample[-1] - t.square().mean().sqrt().item()) < 1e-6
    assert one.limits == (t.min().item(), t.max().item())
    assert equal_bits(one.numbers, sample_of(t, 100))


@pytest.mark.parametrize("room", [5_000, 40_000, 123_456, 10**7])
def test_the_largest_sample_fits(room):
    sizes = [(n, each, n*each) for n, each in [(10, 8), (5000, 4), (5000, 2), (80_000, 4), (2, 1)]]
    k = largest_sample(sizes, room)
    def needed(k): return sum(whole if n <= k else k*each + 8*65 for n, each, whole in sizes)
    assert needed(k) <= room and (k >= 80_000 or needed(k + 1) > room)


def test_threads():
    tensors, wrong, store = [torch.full((500,), float(i)) for i in range(40)], [], TensorStore()
    def work(mine):
        for _ in range(30):
            numbers = [store.put(t) for t in mine]
            wrong.extend(n for n, t in zip(numbers, mine) if not torch.equal(store.get(n), t))
    threads = [threading.Thread(target=work, args=(tensors[i:i + 10],)) for i in range(0, 40, 5)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong and len(store.stored) == 40


def test_outputs_that_later_layers_overwrite():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Dropout(.5, inplace=True))
    x, numbers, kept, store = torch.randn(3, 4), [], [], TensorStore()
    def keep(layer, inputs, output):
        kept.append(output.detach().clone())
        numbers.append(store.put(output))
    handles = [layer.register_forward_hook(keep) for layer in model]
    model(x)
    for handle in handles: handle.remove()
    assert all(torch.equal(store.get(number), t) for number, t in zip(numbers, kept))
