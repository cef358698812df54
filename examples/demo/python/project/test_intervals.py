import unittest

from intervals import merge


class Merge(unittest.TestCase):
    def test_apart(self):
        self.assertEqual(merge([(13, 14), (9, 10)]), [(9, 10), (13, 14)])

    def test_touching(self):
        self.assertEqual(merge([(9, 10), (10, 11)]), [(9, 11)])

    def test_one_inside_another(self):
        self.assertEqual(merge([(9, 17), (10, 11)]), [(9, 17)])


if __name__ == "__main__":
    unittest.main()
